// Package changelog is the list of new IDs of one filter, a Redis Stream that
// every ordergate appends to and follows.
//
// Start with [New], and keep [Log.Run] running. [Log.Append] returns once an ID
// is in the log; [Log.Wait] returns nil once everything that was in the log when
// it was called has been applied here. Together they let a filter say of an ID
// that it does not exist (docs/freshness.md). What a log that can't be trusted
// means for an answer is decided by the caller.
package changelog

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxIDBytes is the length of the longest ID that the log takes.
const MaxIDBytes = 256

var (
	// ErrUnavailable says that Redis could not be asked in time. It passes.
	ErrUnavailable = errors.New("change log unavailable")
	// ErrBroken says that entries of the log may have been missed. It stays until
	// the process ends: nothing that the log says afterwards brings them back.
	ErrBroken = errors.New("change log broken")
	// ErrBadID says that an ID is empty or longer than [MaxIDBytes].
	ErrBadID = errors.New("an ID must have 1 to 256 bytes")
)

//go:embed append.lua
var appendSource string

//go:embed open.lua
var openSource string

//go:embed page.lua
var pageSource string

// Options are the settings of a [Log]. The zero value is usable.
type Options struct {
	Logger    *slog.Logger     // default: none
	PollEvery time.Duration    // how often the log is read when nobody waits; default 100 ms
	Limit     time.Duration    // the longest that a read, and a Wait, may take; default 1 s
	PageSize  int              // entries a read; default 1000
	Now       func() time.Time // default time.Now; dates State.LastRead
}

// EnsureDefaults fills in what is unset.
func (o *Options) EnsureDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.PollEvery <= 0 {
		o.PollEvery = 100 * time.Millisecond
	}
	if o.Limit <= 0 {
		o.Limit = time.Second
	}
	if o.PageSize <= 0 {
		o.PageSize = 1000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Log is the change log of one filter. All methods are safe for concurrent use.
type Log struct {
	client redis.UniversalClient
	filter string
	keys   []string // the log, its identity
	apply  func(id string)
	opts   Options
	append *redis.Script
	open   *redis.Script
	page   *redis.Script

	kick     chan struct{} // of capacity 1: somebody waits
	running  atomic.Bool
	position atomic.Uint64          // sequence number of the last entry applied; stored by the reader only
	epoch    atomic.Pointer[string] // of the log that Run follows, nil before it does

	mu    sync.Mutex
	next  *round // the read that has not begun, nil when nobody waits for one
	state State
	mark  Mark
	lost  func(reason error) // nil unless Resume was called
	own   entry              // the newest entry that Append made here and knows of
	ownIn string             // the epoch that own belongs to
}

// New returns the change log of a filter. The name must be non-empty and have no
// braces, which would change the cluster slot of its keys, "ordergate:{name}:log"
// and "ordergate:{name}:meta".
//
// The client must ask a master, never a replica, and should have
// ContextTimeoutEnabled set, which go-redis leaves off: without it a read of a
// Redis that hangs ends with the client's ReadTimeout rather than with
// [Options.Limit]. Wait keeps its limit in any case.
//
// Apply is called with every ID in the log, in order, by one goroutine, IDs
// appended here included. An ID may come twice.
//
// The log is never trimmed, since a process that starts reads all of it. A
// 20-byte ID takes 47 bytes of memory in Redis 7.0, a 36-byte one 65 (measured on
// 200,000 of each): 470 MB for ten million of the former. The server must not
// evict keys (maxmemory-policy noeviction).
func New(client redis.UniversalClient, filter string, apply func(id string), opts Options) (*Log, error) {
	if filter == "" || strings.ContainsAny(filter, "{}") {
		return nil, fmt.Errorf("change log of filter %q: a filter's name must be non-empty and have no braces", filter)
	}
	opts.EnsureDefaults()
	return &Log{
		client: client,
		filter: filter,
		keys:   []string{"ordergate:{" + filter + "}:log", "ordergate:{" + filter + "}:meta"},
		apply:  apply,
		opts:   opts,
		append: redis.NewScript(appendSource),
		open:   redis.NewScript(openSource),
		page:   redis.NewScript(pageSource),
		kick:   make(chan struct{}, 1),
		state:  State{Phase: Loading},
	}, nil
}

// Append adds an ID to the log. It blocks for one round trip to Redis and returns
// nil once Redis has acknowledged: from then on every Wait that starts anywhere
// includes the ID. It returns [ErrBadID], or [ErrUnavailable] with the cause; the
// ID may be in the log even so, and appending it again does no harm. It does not
// need Run, and goes on when the log is broken: others may still be able to read.
func (l *Log) Append(ctx context.Context, id string) error {
	if len(id) == 0 || len(id) > MaxIDBytes {
		return fmt.Errorf("appending to %s: %w, this one has %d", l.keys[0], ErrBadID, len(id))
	}
	e := entry{id: id, nonce: newNonce()}
	reply, err := l.append.Run(ctx, l.client, l.keys, e.id, e.nonce).StringSlice()
	if err == nil && len(reply) != 2 {
		err = fmt.Errorf("unexpected reply %q", reply)
	}
	if err == nil {
		e.seq, err = strconv.ParseUint(reply[0], 10, 64)
	}
	if err != nil {
		return fmt.Errorf("appending to %s: %w: %w", l.keys[0], ErrUnavailable, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if reply[1] != l.ownIn || e.seq > l.own.seq {
		l.own, l.ownIn = e, reply[1]
	}
	return nil
}

// newNonce returns eight characters that make an entry unlike any other with the
// same sequence number, and a log unlike any other. 48 bits: it is compared with
// one other at a time, so a mistaken match is one in 2.8e14.
func newNonce() string {
	var b [6]byte
	rand.Read(b[:]) // never fails, by its documentation
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Package changelog is the list of new IDs of one filter, a Redis Stream that
// every ordergate appends to and follows.
//
// Start with [New], and keep [Log.Run] running. A read of the log that finds all well
// opens a [Window]: while that holds, an ID that was not applied here is one that no
// client was told of. So after [Log.Append] there is [Log.Spread], which returns when everybody
// with a window has the ID, or all windows are over that began without it. An ID whose Append
// failed may be told of after [Log.Withdraw]: from then on no window holds until it is appended.
// Together they let a filter say of an ID that it does not exist; docs/freshness.md
// has the argument, and docs/freshness.pml the model of it that is checked.
//
// A log can lose entries: by a failover, a crash, an operator. It says so by a
// [Doubt], in which others take part where it is an entry of the log, and goes on.
// Only a source that has the orders themselves can clear a doubt, so that is the
// caller's affair.
package changelog

import (
	"errors"
	"fmt"
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
	// ErrAway says that somebody who creates orders was not heard of for longer than its
	// lease, and may have told clients of orders that are not in the log. It passes.
	ErrAway = errors.New("an ordergate is cut off from the change log")
	// ErrUnfollowed says that a member is away that [Options.Require] names. It passes.
	ErrNotFollowed = errors.New("a table is not followed")
	// ErrEarlier says that an ordergate of an earlier release is a member, which waits for no
	// windows. It passes.
	ErrEarlierRelease = errors.New("an ordergate of an earlier release is a member of the change log")
	// ErrTwin says that another process runs at the same place: when one of them is cut
	// off, the other would be taken for it. It passes.
	ErrDuplicate = errors.New("two ordergates run at the same place: give each its own redis.member")
	// ErrBlind says that the server does not tell whether it was restarted or replaced,
	// and may have lost orders. It passes.
	ErrBlind = errors.New("nobody would notice that Redis was restarted or failed over: let the user run INFO")
	// ErrBroken says that the log's keys hold something else. It stays until they do not.
	ErrBroken = errors.New("change log broken")
	// ErrBadID says that an ID is empty or longer than [MaxIDBytes].
	ErrBadID = errors.New("an ID must have 1 to 256 bytes")
)

// Kind is why there is a doubt.
type Kind string

// The kinds of doubt.
const (
	Failover Kind = "term"  // Redis restarted or failed over, and may have lost its newest entries
	Crash    Kind = "crash" // a member ended, or was away for too long, without taking its leave
	Lost     Kind = "lost"  // an order was created whose ID nobody could read, or keep
	Gap      Kind = "gap"   // entries are missing, or the log is another one
	Start    Kind = "start" // whatever came of the log before it was read here for the first time
	// Running is a call that nobody waits for any more: the order may yet be created.
	Running Kind = "running"
)

// Log is the change log of one filter. All methods are safe for concurrent use.
type Log struct {
	client redis.UniversalClient
	filter string
	keys   []string // the log, what is known of it, its members, the inbox, the readers, their reads, what all have
	apply  func(id string)
	opts   Options
	append *redis.Script
	clear  *redis.Script
	join   *redis.Script
	forget *redis.Script
	leave  *redis.Script
	recall *redis.Script
	page   *redis.Script
	adopt  *redis.Script
	trim   *redis.Script

	snapshotKey string // the key of the current one, and the beginning of those of chunks

	wakeReader     chan struct{} // of capacity 1: there is something to read, or to report
	peersKick      chan struct{} // of capacity 1: somebody waits in Spread
	started        atomic.Bool
	peerWaiters    atomic.Int64               // how many wait in Spread for readers
	unreported     atomic.Pointer[ackedEntry] // for which a creator has waited in vain
	requiredJoined atomic.Bool                // all of opts.Require were there at one time
	position       atomic.Uint64              // sequence number of the last entry applied; stored by the reader only
	window         atomic.Pointer[Window]     // the last, nil if none holds
	reader         string                     // what the log knows the reader by, see page.lua; "": windows are never opened
	member         *Member                    // nil: none
	tailReached    chan struct{}              // closed once the tail was reached

	mu          sync.Mutex
	nextRead    *sharedRead // the read that has not begun, nil when nobody waits for one
	lastAck     ack         // all that was appended here
	progress    readerProgress
	peers       peerWindows
	state       State
	mark        Mark
	unreadAcks  []ackedEntry // of each era, the newest entry that was appended here and acknowledged
	readAcks    ackedEntry   // up to which all that was acknowledged in an era has been read
	recent      recent
	members     []string           // members, as of the last renewal, before whatever was lost since
	doubtLogged map[Kind]time.Time // when a doubt was told in the log last
}

// New returns the change log of a filter. The name must be non-empty and have no
// braces, which would change the cluster slot of its keys, "ordergate:{name}:log",
// ":meta", ":members", ":inbox", ":readers", ":reads", ":had" and ":snapshot".
//
// The client must ask a master, never a replica, and should have
// ContextTimeoutEnabled set, which go-redis leaves off: without it a read of a
// Redis that hangs ends with the client's ReadTimeout rather than with
// [Options.Limit]. Wait keeps its limit in any case.
//
// Apply is called with every ID in the log, in order, by one goroutine, IDs
// appended here included. An ID may come twice.
//
// A 20-byte ID takes 47 bytes of memory in Redis 7.0, a 36-byte one 65 (measured on
// 200,000 of each): 470 MB for ten million of the former. The server must not
// evict keys (maxmemory-policy noeviction).
func New(client redis.UniversalClient, filter string, apply func(id string), opts Options) (*Log, error) {
	if filter == "" || strings.ContainsAny(filter, "{}") {
		return nil, fmt.Errorf("change log of filter %q: a filter's name must be non-empty and have no braces", filter)
	}
	if strings.Contains(opts.Member, instanceSep) {
		return nil, fmt.Errorf("change log of filter %s: the member %q has %q in it", filter, opts.Member, instanceSep)
	}
	opts.EnsureDefaults()
	script := func(source string) *redis.Script { return redis.NewScript(withoutComments(enterSource + source)) }
	prefix := "ordergate:{" + filter + "}:"
	l := &Log{
		client: client,
		filter: filter,
		keys: []string{prefix + "log", prefix + "meta", prefix + "members", prefix + "inbox",
			prefix + "readers", prefix + "reads", prefix + "had"},
		apply:       apply,
		opts:        opts,
		append:      script(appendSource),
		clear:       script(clearSource),
		join:        script(joinSource),
		forget:      script(forgetSource),
		leave:       script(leaveSource),
		recall:      script(recallSource),
		page:        script(pageSource),
		adopt:       script(adoptSource),
		trim:        script(trimSource),
		wakeReader:  make(chan struct{}, 1),
		peersKick:   make(chan struct{}, 1),
		progress:    readerProgress{changed: make(chan struct{})},
		state:       State{Phase: Loading},
		tailReached: make(chan struct{}),
	}
	l.snapshotKey = prefix + "snapshot"
	l.reader = newNonce()
	if opts.Member != "" {
		l.member = l.newSelf(opts.Member)
		l.reader = l.member.name
	}
	l.reader += "/" + strconv.FormatInt(opts.Window.Milliseconds(), 10)
	if opts.Window <= 0 {
		l.reader = ""
	}
	return l, nil
}

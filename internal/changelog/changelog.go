// Package changelog keeps the new IDs of one filter in a Redis Stream, the change log. Every
// ordergate appends to it and follows it.
//
// Start with [New], and keep [Log.Run] running. A read that finds the log intact opens a [Window].
// While the window holds, no client has been sent the ID of an order that was not applied here.
// Creators keep that true: after [Log.Append] they call [Log.WaitForPeers]. It returns once every
// reader with a window has applied the ID, or every window without it has ended. After an Append
// that failed they call [Log.Withdraw]: no window holds from then on until the ID is appended. So a
// filter can answer Absent. docs/freshness.md has the argument, and docs/freshness.pml the checked
// model.
//
// A log can lose entries: by a failover, a crash, an operator. The reader then reports a [Doubt]
// and goes on. Only a source with the orders can clear a doubt: that is left to the caller.
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

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/rediskey"
)

var (
	// ErrUnavailable means that Redis did not answer in time. It is temporary.
	ErrUnavailable = errors.New("change log unavailable")
	// ErrAway means that a member which creates orders has not renewed its lease. Clients may have
	// received orders that are not in the log. It is temporary.
	ErrAway = errors.New("an ordergate is cut off from the change log")
	// ErrNotFollowed means that a member named by [Options.Require] is away, or late. It is temporary.
	ErrNotFollowed = errors.New("the changes of a table are not known up to now")
	// ErrEarlierRelease means that an ordergate of an earlier release is a member. It does not wait
	// for windows. It is temporary.
	ErrEarlierRelease = errors.New("an ordergate of an earlier release is a member of the change log")
	// ErrDuplicate means that another process runs with the same instance ID. If one of them is cut
	// off, others take the second for it. It is temporary.
	ErrDuplicate = errors.New("two ordergates have the same instance ID: give each its own redis.member")
	// ErrBlind means that the server does not report its replication ID. A restart or a failover
	// that lost orders would go unnoticed. It is temporary.
	ErrBlind = errors.New("restarts and failovers of Redis cannot be detected: let the user run INFO")
	// ErrBroken means that the log's keys hold something else. It stays until they are deleted.
	ErrBroken = errors.New("change log broken")
	// ErrBadID means that an ID is empty or longer than [orderid.MaxBytes].
	ErrBadID = fmt.Errorf("an ID must have 1 to %d bytes", orderid.MaxBytes)
)

// Kind is the cause of a doubt.
type Kind string

// The kinds of doubt.
const (
	Failover Kind = "term"  // Redis restarted or failed over, and may have lost its newest entries
	Crash    Kind = "crash" // a member ended, or was away for too long, without deregistering
	Lost     Kind = "lost"  // an order was created, and its ID could not be read or stored
	Gap      Kind = "gap"   // entries are missing, or the log was replaced by another
	Start    Kind = "start" // the log is read here for the first time; its history is unknown
	// Running is a call without a waiting client: the order may still be created.
	Running Kind = "running"
)

// The indexes of [Log]'s keys, in the order of KEYS in enter.lua.
const (
	keyLog = iota
	keyMeta
	keyMembers
	keyInbox
	keyReaders
	keyReads
	keyHad
)

// Log is the change log of one filter. All methods are safe for concurrent use.
type Log struct {
	client redis.UniversalClient
	filter string
	keys   []string // by keyLog and so on
	apply  func(id string)
	opts   Options
	append *redis.Script
	follow *redis.Script
	clear  *redis.Script
	join   *redis.Script
	forget *redis.Script
	leave  *redis.Script
	recall *redis.Script
	page   *redis.Script
	adopt  *redis.Script
	trim   *redis.Script

	snapshotKey string // the key of the current snapshot, and the prefix of the keys of chunks

	wakeReader     chan struct{} // capacity 1: there is an entry to read, or progress to report
	peersKick      chan struct{} // capacity 1: a caller waits in WaitForPeers
	started        atomic.Bool
	peerWaiters    atomic.Int64               // callers of WaitForPeers that wait for readers
	unreported     atomic.Pointer[ackedEntry] // the entry for which WaitForPeers waited the longest time
	requiredJoined atomic.Bool                // all of opts.Require were members at one time
	position       atomic.Uint64              // sequence number of the last entry applied; only the reader stores it
	window         atomic.Pointer[Window]     // the last window; nil if none holds
	reader         string                     // the reader's name in the log, see page.lua; "": it opens no windows
	member         *Member                    // nil if this process is none
	tailReached    chan struct{}              // closed after the first read to the tail

	mu          sync.Mutex
	nextRead    *sharedRead // the next read; nil if no caller waits for it
	lastAck     ack         // covers all appends of this process
	progress    readerProgress
	peers       peerWindows
	state       State
	mark        Mark
	unreadAcks  []ackedEntry // the newest entry acknowledged in each lease epoch, until it is read
	readAcks    ackedEntry   // the position up to which acknowledged entries have been read
	recent      recent
	members     []string           // as of the last renewal, from before any loss
	doubtLogged map[Kind]time.Time // when a doubt of each kind was last logged
}

// New returns the change log of a filter. The name must be non-empty and have no braces, which
// would change the cluster slot of its keys: "ordergate:{name}:log", ":meta", ":members", ":inbox",
// ":readers", ":reads", ":had" and ":snapshot".
//
// The client must connect to a primary, never to a replica. It should have ContextTimeoutEnabled
// set, which go-redis leaves off. Without it, a read from a Redis that hangs takes the client's
// ReadTimeout rather than [Options.Timeout]. Wait keeps its timeout in any case.
//
// One goroutine calls apply with every ID in the log, in order, including IDs appended here. An ID
// may come twice.
//
// An ID of 20 bytes takes 47 bytes of memory in Redis 7.0, one of 36 bytes takes 65, measured on
// 200,000 of each. Ten million of the former take 470 MB. The server must not evict keys
// (maxmemory-policy noeviction).
func New(client redis.UniversalClient, filter string, apply func(id string), opts Options) (*Log, error) {
	if filter == "" || strings.ContainsAny(filter, "{}") {
		return nil, fmt.Errorf("change log of filter %q: a filter's name must be non-empty and have no braces", filter)
	}
	if strings.Contains(opts.Member, instanceSep) {
		return nil, fmt.Errorf("change log of filter %s: the member %q has %q in it", filter, opts.Member, instanceSep)
	}
	opts.EnsureDefaults()
	script := func(source string) *redis.Script { return redis.NewScript(withoutComments(enterSource + source)) }
	key := func(part string) string { return rediskey.Of(filter, part) }
	l := &Log{
		client: client,
		filter: filter,
		keys: []string{
			keyLog: key("log"), keyMeta: key("meta"), keyMembers: key("members"), keyInbox: key("inbox"),
			keyReaders: key("readers"), keyReads: key("reads"), keyHad: key("had"),
		},
		apply:       apply,
		opts:        opts,
		append:      script(appendSource),
		follow:      script(followSource),
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
	l.snapshotKey = key("snapshot")
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

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
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
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

var (
	//go:embed enter.lua
	enterSource string
	//go:embed append.lua
	appendSource string
	//go:embed clear.lua
	clearSource string
	//go:embed join.lua
	joinSource string
	//go:embed forget.lua
	forgetSource string
	//go:embed leave.lua
	leaveSource string
	//go:embed recall.lua
	recallSource string
	//go:embed page.lua
	pageSource string
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

// Options are the settings of a [Log]. The zero value is usable.
type Options struct {
	// Doubt is told of each doubt, by the goroutine that calls apply and in the same
	// order. It must not block. No window holds that is opened between the finding and its
	// return.
	OnDoubt func(Doubt)
	// Cleared is told, by the same goroutine, up to where the doubts are cleared that Doubt
	// was told of; see [Log.Clear]. Again: it is read once more, and says nothing of the
	// doubts of other logs. It must not block.
	OnCleared func(upTo Mark, again bool)
	// Lasting has the gaps that the reader finds appended, as doubts: they are there after
	// a restart. It is for a filter without a live source.
	PersistGaps bool
	// Member is the place that this process appends from, the same after a restart and
	// another one for every other process; "": it only reads, or never has an ID whose
	// append could fail. It must not have '#' in it.
	Member string
	// Require are members that there must be for a window to open, see [Log.Member].
	Require []string
	// Keep is how many entries the log keeps at least; 0: all of them. It is for a
	// filter whose live source has whatever is trimmed, and must be the same everywhere.
	MinEntries int
	// Ephemeral is for a server that ends with this process, and need not tell whether it
	// is another one.
	Ephemeral bool

	// CanonicalForms converts IDs that are appended. Each form is an entry of its own:
	// followers of an earlier release may take an entry as it is. Default: no conversion.
	CanonicalForms func(ids []string) []string

	// Bridge adds everything that the log had up to a mark, from the current
	// [Log.Snapshot], and returns that mark; the zero Mark if there is none of use. Run
	// calls it when the log begins behind what it has, and goes on in the log. It may
	// block. An error is one that passes: it is called again. Nil: a log that begins
	// later lacks something.
	LoadSnapshot func(ctx context.Context) (Mark, error)

	// Window is how long a [Window] lasts. Creators wait for the longest of all readers.
	// 0: none is ever opened.
	Window time.Duration

	Logger    *slog.Logger     // default: none
	PollEvery time.Duration    // how often the log is read at least; default a fourth of Window, a fifth of Lease at most
	Timeout   time.Duration    // the longest that a read, and a Wait, may take; default 1 s
	PageSize  int              // entries a read; default 1000
	Lease     time.Duration    // of a member; default 2 s
	Expel     time.Duration    // after which a lapsed member is taken for gone; default 5 min
	Pause     time.Duration    // between two reads while there is something new, for each member beyond the second; default 700 µs
	Now       func() time.Time // default time.Now; dates State.LastRead
}

// EnsureDefaults fills in what is unset.
func (o *Options) EnsureDefaults() {
	if o.OnDoubt == nil {
		o.OnDoubt = func(Doubt) {}
	}
	if o.CanonicalForms == nil {
		o.CanonicalForms = func(ids []string) []string { return ids }
	}
	if o.OnCleared == nil {
		o.OnCleared = func(Mark, bool) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultLimit
	}
	if o.PageSize <= 0 {
		o.PageSize = 1000
	}
	if o.Lease <= 0 {
		o.Lease = defaultLease
	}
	if o.PollEvery <= 0 {
		o.PollEvery = pollEvery(o.Window, o.Lease)
	}
	if o.Expel <= 0 {
		o.Expel = defaultExpel
	}
	if o.Pause <= 0 {
		o.Pause = 700 * time.Microsecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

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

// ownEntry is an entry, and the log and the era in which it was acknowledged.
type ackedEntry struct {
	entry
	logID, leaseEpoch string
}

func (e ackedEntry) mark() Mark { return Mark{LogID: e.logID, Seq: e.seq, Nonce: e.nonce} }

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

// withoutComments halves what goes to Redis.
func withoutComments(source string) string {
	var out strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// Append adds IDs to the log, in one step. It blocks for one round trip to Redis,
// and returns nil once Redis has acknowledged: a client may be told of
// them after [Log.Spread]. It returns [ErrBadID], or [ErrUnavailable] with the cause;
// the IDs may be in the log even so, and appending them again does no harm. They are
// owed then, see [Log.Withdraw]. It does not need Run.
func (l *Log) Append(ctx context.Context, ids ...string) error {
	ids = l.opts.CanonicalForms(ids)
	items, err := l.entries(ids)
	if err != nil || len(ids) == 0 {
		return err
	}
	l.member.track(ids...)
	if _, err := l.runAppend(ctx, l.append, nil, items); err != nil {
		return err
	}
	l.member.ack(ids...)
	return nil
}

// Record is Append for somebody who tells nobody of the IDs before it returns nil:
// after an error nothing is owed, and whether they are tried again is the caller's affair.
func (l *Log) Record(ctx context.Context, ids ...string) error {
	ids = l.opts.CanonicalForms(ids)
	items, err := l.entries(ids)
	if err != nil || len(ids) == 0 {
		return err
	}
	_, err = l.runAppend(ctx, l.append, nil, items)
	return err
}

// entries returns what entries say of IDs.
func (l *Log) entries(ids []string) ([]item, error) {
	items := make([]item, 0, len(ids))
	for _, id := range ids {
		if len(id) == 0 || len(id) > MaxIDBytes {
			return nil, fmt.Errorf("appending to %s: %w, this one has %d", l.keys[0], ErrBadID, len(id))
		}
		items = append(items, item{"id", id})
	}
	return items, nil
}

// Doubt appends a doubt, which everybody takes part in who follows the log: what it
// is about was created before the call. It returns as Append does, with the place of the
// entry, and like an ID it is owed after an error. One that is about orders of any age
// covers what was owed before.
func (l *Log) AppendDoubt(ctx context.Context, d Doubt) (Mark, error) {
	covered := l.member.trackDoubt(d.text())
	at, err := l.recordDoubt(ctx, d)
	if err != nil {
		return Mark{}, err
	}
	l.member.ackDoubt(d.text(), covered, d.Since.IsZero())
	return at, nil
}

// RecordDoubt is to Doubt what Record is to Append.
func (l *Log) RecordDoubt(ctx context.Context, d Doubt) error {
	_, err := l.recordDoubt(ctx, d)
	return err
}

func (l *Log) recordDoubt(ctx context.Context, d Doubt) (Mark, error) {
	if d.Kind == Running {
		d.Reason = strconv.FormatInt(l.member.serverTime(), 10) + " " + d.Reason
	}
	a, err := l.runAppend(ctx, l.append, nil, []item{{"doubt", d.text()}})
	return a.mark(), err
}

// acknowledged is an entry that was appended, when the reply came, and from when on it counts for
// those who ask a server that was replaced.
type ack struct {
	ackedEntry
	received, validFrom time.Time
}

// put runs a script that appends. The items, which follow its other arguments, are kept for a
// while: a log that loses them gets them again. It blocks for one round trip.
func (l *Log) runAppend(ctx context.Context, by *redis.Script, args []any, items []item) (ack, error) {
	for _, i := range items {
		args = append(args, i.field, i.value)
	}
	sent := time.Now()
	nonce, cmd := l.runScript(ctx, by, l.keys, args...)
	e := entry{nonce: nonce}
	reply, err := cmd.StringSlice()
	if err == nil {
		l.member.noteRoundTrip(time.Since(sent))
	}
	if err == nil && len(reply) != 5 {
		err = fmt.Errorf("unexpected reply %q", reply)
	}
	var age, window int64
	if err == nil {
		var errs [3]error
		e.seq, errs[0] = strconv.ParseUint(reply[0], 10, 64)
		age, errs[1] = strconv.ParseInt(reply[3], 10, 64)
		window, errs[2] = strconv.ParseInt(reply[4], 10, 64)
		err = errors.Join(errs[:]...)
	}
	if err != nil {
		return ack{}, l.appendError(err)
	}
	logID, leaseEpoch := reply[1], reply[2]
	l.mu.Lock()
	// Before the era is looked at: what the reader finds out about a log, it finds out
	// of this entry too, or this is not taken for acknowledged.
	if l.readAcks.logID != logID || l.readAcks.leaseEpoch != leaseEpoch || l.readAcks.seq < e.seq {
		l.addUnreadAck(ackedEntry{e, logID, leaseEpoch})
		for n, i := range items {
			l.recent.addAcked(ackedItem{i, logID, leaseEpoch, e.seq - uint64(len(items)-1-n)})
		}
	}
	l.peers.note(leaseEpoch, time.Duration(window)*time.Millisecond, l.opts.Lease)
	defer l.mu.Unlock() // calls are noted in the order in which their eras are seen
	counts, err := l.member.ackValidFrom(leaseEpoch, sent)
	if err != nil {
		return ack{}, l.appendError(err)
	}
	now := time.Now()
	a := ack{ackedEntry{e, logID, leaseEpoch}, now, laterOf(counts, now.Add(l.untilLeasesOver(age)))}
	l.lastAck = l.lastAck.merge(a)
	return a, nil
}

// and returns what who waits for both has to wait for. They come in any order within an era.
func (a ack) merge(b ack) ack {
	if a.leaseEpoch == b.leaseEpoch && a.seq > b.seq {
		b.ackedEntry = a.ackedEntry
	}
	b.received, b.validFrom = laterOf(a.received, b.received), laterOf(a.validFrom, b.validFrom)
	return b
}

// noteOwn keeps an entry that was acknowledged until a page was looked through for it. Each
// failover may lose one, and there would be nothing behind those of later eras to show that.
func (l *Log) addUnreadAck(e ackedEntry) {
	i := slices.IndexFunc(l.unreadAcks, func(own ackedEntry) bool { return own.logID == e.logID && own.leaseEpoch == e.leaseEpoch })
	if i < 0 {
		l.unreadAcks = append(slices.Clone(l.unreadAcks), e)
	} else if e.seq > l.unreadAcks[i].seq {
		l.unreadAcks = slices.Clone(l.unreadAcks) // the reader may have it
		l.unreadAcks[i] = e
	}
}

func (l *Log) appendError(cause error) error {
	return fmt.Errorf("appending to %s: %w: %w", l.keys[0], ErrUnavailable, cause)
}

// unsettled returns for how long an era is not certainly settled yet whose age in
// milliseconds has just been told; 0 or less: it is. Whoever held leases at a server that
// was replaced, and has come here since or has ended, is missed there then. Before that,
// somebody who asks that server might be sure of orders that are told of here.
func (l *Log) untilLeasesOver(age int64) time.Duration {
	return l.opts.Lease + margin(l.opts.Lease) - time.Duration(age)*time.Millisecond
}

// latest returns the later of two moments.
func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// once has go-redis not repeat a script after an error: another server would get the same
// nonce, and nobody could tell their entries apart.
type noRetryClient struct{ redis.UniversalClient }

type noRetryCmd struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (noRetryCmd) NoRetry() bool { return true }

// EvalSha implements redis.Scripter.
func (c noRetryClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return c.do(ctx, "evalsha", sha, keys, args)
}

// Eval implements redis.Scripter.
func (c noRetryClient) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	return c.do(ctx, "eval", source, keys, args)
}

func (c noRetryClient) do(ctx context.Context, how, script string, keys []string, args []any) *redis.Cmd {
	all := append(make([]any, 0, 3+len(keys)+len(args)), how, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	_ = c.Process(ctx, noRetryCmd{cmd})
	return cmd
}

// run runs a script with a nonce of its own, which it returns, and once more with another one if the connection
// was lost.
func (l *Log) runScript(ctx context.Context, script *redis.Script, keys []string, args ...any) (nonce string, cmd *redis.Cmd) {
	for range 2 {
		nonce = newNonce()
		cmd = script.Run(ctx, noRetryClient{l.client}, keys, append([]any{nonce, l.opts.MinEntries}, args...)...)
		if _, lost := errors.AsType[*net.OpError](cmd.Err()); !lost && !errors.Is(cmd.Err(), io.EOF) || ctx.Err() != nil {
			break
		}
	}
	return nonce, cmd
}

// newNonce returns eight characters that make an entry unlike any other with the
// same sequence number, and a log unlike any other. 48 bits: it is compared with
// one other at a time, so a mistaken match is one in 2.8e14.
func newNonce() string {
	var b [6]byte
	rand.Read(b[:]) // never fails, by its documentation
	return base64.RawURLEncoding.EncodeToString(b[:])
}

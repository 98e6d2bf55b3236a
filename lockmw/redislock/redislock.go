// Package redislock takes locks in Redis: exclusive, fair, read and write locks
// and semaphores, in the formats of Redisson, so that a Java service that calls
// getLock(key) and a [Locker] exclude and wake each other. Each grant carries a
// fence, a number that grows with every grant of the key.
//
// Start with [New], or [NewQuorum] for a lock on several independent servers, and
// [Locker.Acquire] or, for several keys at once, [Locker.AcquireAll]. Give every
// [Lease] back with [Lease.Release], or with [Lease.Hold] where it is unknown
// whether the work it guarded goes on:
//
//	locker, err := redislock.New(client, redislock.Options{
//		Wait: redislock.Wait{UpTo: 2 * time.Second}, MaxWaitersPerKey: 100,
//	})
//	...
//	lease, err := locker.Acquire(ctx, "order:lock:1001")
//	if errors.Is(err, redislock.ErrBusy) {
//		...
//	}
//	defer lease.Release(context.WithoutCancel(ctx))
//	pay(ctx, lease.Fence())
//
// A lease is renewed at a third of its length. It can still be lost (Redis away
// for longer than the lease, the key deleted by hand, this process stopped):
// [Lease.Lost] reports it, and the fence lets a database refuse what a holder does
// after that.
//
// [List], [Inspect] and [ForceRelease] are for operators. The package says
// nothing about when to release and when to hold.
package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

var (
	// ErrBusy says that another held the lock for as long as the caller would
	// wait, or that too many were waiting for it already.
	ErrBusy = errors.New("lock is held by another")
	// ErrClosed says that the Locker was closed meanwhile.
	ErrClosed = errors.New("the locker is closed")
)

// cleanupTime bounds what is done on behalf of a caller that has gone.
const cleanupTime = 2 * time.Second

// Locker takes locks of one kind. It is safe for concurrent use. Close it to
// stop its goroutines.
type Locker struct {
	opts    Options
	log     *slog.Logger
	nodes   []*node // one, or the servers of a quorum
	scripts scripts

	leases           renewer
	waiters          waitQueues
	health           health
	cleanup          taskGroup // what is given back on contexts of its own
	closed           context.Context
	close            context.CancelFunc
	serial           atomic.Uint64
	leaseArg         any // milliseconds, boxed once
	lifeArg          any
	waiterTimeoutArg any
}

// node is one Redis: a single server, one behind Sentinel, or a whole cluster.
type node struct {
	client     redis.UniversalClient
	cluster    *redis.ClusterClient // client, if it is one
	batcher    *redisbatch.ScriptBatcher
	subscriber subscriber
	// publish is the command that wakes waiters: on a cluster a message reaches
	// only the nodes of its shard.
	publish string
}

// Servers returns the clients by which the Locker speaks to its one Redis, or to the servers
// of its quorum.
func (l *Locker) Servers() []redis.UniversalClient {
	clients := make([]redis.UniversalClient, len(l.nodes))
	for i, n := range l.nodes {
		clients[i] = n.client
	}
	return clients
}

// New returns a Locker that speaks to Redis through client, which it does not
// close. The error names every option that is wrong. The client should have
// short timeouts: they bound each call to Redis.
func New(client redis.UniversalClient, opts Options) (*Locker, error) {
	return build([]redis.UniversalClient{client}, opts)
}

func build(clients []redis.UniversalClient, opts Options) (*Locker, error) {
	opts.ensureDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("making a locker: %w", err)
	}
	l := &Locker{
		opts: opts, log: opts.Logger, scripts: scriptsOf(opts.Kind, opts.Format),
		leaseArg: opts.Lease.Milliseconds(), lifeArg: opts.FenceLife.Milliseconds(), waiterTimeoutArg: int64(0),
	}
	if opts.waits() {
		l.waiterTimeoutArg = fairWaiterTimeout.Milliseconds()
	}
	l.closed, l.close = context.WithCancel(context.Background())
	l.waiters.start(l)
	var gather func() int
	if opts.Gather {
		gather = l.leases.count // each will be released
	}
	for _, client := range clients {
		n := &node{
			client: client, publish: "publish",
			batcher: redisbatch.NewScriptBatcher(client, gather, opts.Replicas, opts.ReplicaTimeout),
		}
		if cluster, ok := client.(*redis.ClusterClient); ok {
			n.cluster, n.publish = cluster, "spublish"
		}
		n.subscriber = subscriber{client: client, cluster: n.cluster, queues: &l.waiters}
		l.nodes = append(l.nodes, n)
	}
	l.leases.start(l)
	return l, nil
}

// Close stops renewing and waiting, and waits for what it started. Leases that
// are still held are left to end by themselves: release them first.
func (l *Locker) Close() {
	l.close()
	l.waiters.wakeAll()
	l.leases.stop()
	l.cleanup.close()
	for _, n := range l.nodes {
		n.subscriber.close()
		n.batcher.Close()
	}
}

// Held returns how many leases are being renewed.
func (l *Locker) Held() int { return l.leases.count() }

// Waiting returns how many callers of Acquire are waiting for a lock.
func (l *Locker) Waiting() int { return int(l.waiters.total.Load()) }

// AcquireOption changes one lease.
type AcquireOption struct {
	maxHold time.Duration
	present string
	request string
	stored  string
	since   time.Time // of stored; zero: any
	undoes  bool
	settles bool
	blocks  bool      // the caller may block
	until   time.Time // zero: the Locker's wait decides
}

// MaxHold ends renewal this long after the lock was asked for, so that a call
// that never ends does not keep its order for ever. The lease then ends as one
// that is lost. 0 means never.
func MaxHold(d time.Duration) AcquireOption { return AcquireOption{maxHold: d} }

// Reenter presents the owner of a lease. Where it holds the lock by a grant of a
// [Locker], a lease of the same owner and fence is granted beside it at once; each
// of the two has to be given up, and the lock stays taken until both are. Where it
// does not, it is ignored.
func Reenter(owner string) AcquireOption { return AcquireOption{present: owner} }

// Request names what the lock is for, to an operator who looks at it.
func Request(text string) AcquireOption { return AcquireOption{request: text} }

// Until ends the wait at a time, if the Locker's wait does not end earlier. A lock that is
// free is taken after it, too.
func Until(t time.Time) AcquireOption { return AcquireOption{until: t} }

// end returns when a wait is over that begins now.
func (o AcquireOption) end(w Wait, now time.Time) time.Time {
	end := w.end(now)
	if !o.until.IsZero() && o.until.Before(end) {
		return o.until
	}
	return end
}

func merge(opts []AcquireOption) (o AcquireOption) {
	for _, add := range opts {
		o.maxHold = max(o.maxHold, add.maxHold)
		if add.present != "" {
			o.present = add.present
		}
		if add.request != "" {
			o.request = add.request
		}
		if add.stored != "" {
			o.stored, o.since = add.stored, add.since
		}
		o.undoes, o.settles = o.undoes || add.undoes, o.settles || add.settles
		if !add.until.IsZero() {
			o.until = add.until
		}
	}
	return o
}

// storedBefore returns the name of a stored answer of any age; "": none counts.
func (o AcquireOption) storedBefore() string {
	if !o.since.IsZero() {
		return ""
	}
	return o.stored
}

// Acquire takes the lock at key and returns its lease. It blocks until then,
// until the wait is over (an error that wraps [ErrBusy]), until ctx ends (its
// error), until it finds the answer of an earlier call ([*StoredAnswer], see [Stored]), or
// until Redis fails (any other error; see [ForeignError]). Whatever the
// reason, when it returns an error, no lock is left behind: one whose grant got
// lost on its way is released.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return l.AcquireAll(ctx, []string{key}, opts...)
}

// AcquireAll takes the locks at all the keys, or none, and returns one lease of
// them. Keys may come in any order and more than once; they are taken in sorted
// order, so that two calls with keys in common cannot each hold what the other
// waits for. Exclusive locks take one round trip for each cluster slot. For the
// rest it is like Acquire; the options' wait covers all keys.
func (l *Locker) AcquireAll(ctx context.Context, keys []string, opts ...AcquireOption) (lease *Lease, err error) {
	done := make(chan struct{})
	o := merge(opts)
	o.blocks = true
	l.acquire(ctx, keys, o, func(granted *Lease, failed error) {
		lease, err = granted, failed
		close(done)
	})
	<-done
	return lease, err
}

// AcquireAsync is AcquireAll for a caller that must not block. It calls then once, with what AcquireAll would
// return: a lease in a goroutine that serves others, so then must not block, and an error in one of its own.
// Nothing waits in a goroutine until then.
func (l *Locker) AcquireAsync(ctx context.Context, keys []string, then func(*Lease, error), opts ...AcquireOption) {
	o := merge(opts)
	if len(keys) != 1 || o.present != "" || l.nodes[0].cluster != nil { // this asks Redis before it waits
		go l.acquire(ctx, keys, o, then)
		return
	}
	l.acquire(ctx, keys, o, then)
}

// acquire acquires locks. It calls then once: with a lease as take does, and with an error as AcquireAll or
// AcquireAsync does.
func (l *Locker) acquire(ctx context.Context, keys []string, o AcquireOption, then func(*Lease, error)) {
	if len(keys) > 1 {
		keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	}
	start := time.Now()
	end := o.end(l.opts.Wait, start)
	done := func(lease *Lease, err error) {
		l.opts.Observer.Acquired(ctx, resultOf(ctx, err), time.Since(start))
		switch {
		case err == nil:
		case len(keys) == 1:
			err = fmt.Errorf("acquiring lock %s: %w", keys[0], err)
		default:
			err = fmt.Errorf("acquiring %d locks: %w", len(keys), err)
		}
		if err != nil && !o.blocks {
			go then(nil, err) // what follows an error may block
			return
		}
		then(lease, err)
	}
	found := func(lease *Lease, err error) {
		if l.readsAgain(keys, err) {
			r := &reading{locker: l, ctx: ctx, keys: keys, opts: o, end: end, then: done}
			r.read()
			return
		}
		done(lease, err)
	}
	switch len(keys) {
	case 0:
		then(nil, errors.New("acquiring locks: no keys"))
	case 1:
		l.acquireOne(ctx, keys[0], o, end, found)
	default:
		l.acquireAll(ctx, keys, o, end, found)
	}
}

func resultOf(ctx context.Context, err error) Result {
	var stored *StoredAnswer
	switch {
	case err == nil:
		return Granted
	case errors.As(err, &stored):
		return Answered
	case errors.Is(err, ErrBusy):
		return Busy
	case errors.Is(ctx.Err(), context.Canceled):
		return Canceled
	}
	return Failed
}

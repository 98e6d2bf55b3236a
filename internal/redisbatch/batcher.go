// Package redisbatch sends the calls of many goroutines to Redis in few round trips.
// Start with [ScriptBatcher] for Lua scripts: it sends them by name, waits for replicas,
// and reports after an error whether the script may have run. [Batcher] is the part
// below it, for calls of any kind: it queues them by server and takes batches. What the
// calls mean is left to the packages that make them.
//
// go-redis has an AutoPipeliner for the like, marked experimental. This package exists
// because a caller that leaves has to learn whether its call was sent, and because two
// batches on their way fill a server better than one.
package redisbatch

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is what a [Batcher] sends.
type Call interface {
	comparable
	// Done is called by a worker once the answer is there. It must not block.
	Done()
}

// Options are the settings of a [Batcher].
type Options[C Call] struct {
	Client redis.UniversalClient
	// A batch has its share of the calls that wait, but at least MinBatch of them (or
	// all) and at most MaxBatch.
	MinBatch, MaxBatch int
	// Gather has the calls to a server that is near wait a moment for each other while many are
	// under way: it returns how many will call again before long. Nil: none wait.
	Gather func() int
	// Send sends a batch and stores the answers in the calls. It blocks until then. Node
	// is the primary of a cluster that has the batch's keys, else nil. Several
	// goroutines call it at once.
	Send func(ctx context.Context, node *redis.Client, batch []C)
}

// Batcher queues calls by the server that they go to, and sends those of one queue
// together. Its methods are safe for concurrent use.
type Batcher[C Call] struct {
	opts    Options[C]
	cluster *redis.ClusterClient // the client, if it is one

	mu     sync.Mutex
	queues map[*redis.Client]*Queue[C] // by primary of a cluster, nil elsewhere

	workersMu sync.Mutex // orders Go before Wait
	workers   sync.WaitGroup
	closed    bool
}

// MaxWorkers is how many batches one server is sent at a time. With two, it works on one
// while this process makes and reads the other. In `make bench-locks`, scenario distinct,
// four took no more locks a second, in batches half as large, which cost Redis 6 percent
// more.
const MaxWorkers = 2

const (
	// slowAfter is how long a server may take before callers no longer send from their
	// own goroutines, which notice the end of their context only when the answer comes.
	slowAfter = 20 * time.Millisecond
	// nearWithin is how soon a server answers for which a call may wait for the answer to
	// another one.
	nearWithin = time.Millisecond
	// queueUnused is when the node of a queue may have left the cluster.
	queueUnused = 10 * time.Minute
	// While so many will call again, the batch that follows one of several calls gathers for a
	// while. That is up to a millisecond, since no timer is exact. Inside Envoy a settlement takes
	// a sixth less CPU by it; fewer callers would wait for each other in vain.
	busyFrom  = 12
	gatherFor = 50 * time.Microsecond
)

// New returns a Batcher. It does not close the client.
func New[C Call](opts Options[C]) *Batcher[C] {
	b := &Batcher[C]{opts: opts, queues: make(map[*redis.Client]*Queue[C])}
	b.cluster, _ = opts.Client.(*redis.ClusterClient)
	return b
}

// Queue returns the queue of the server that has a key. Only a cluster may fail to find
// it.
func (b *Batcher[C]) Queue(ctx context.Context, key string) (*Queue[C], error) {
	var node *redis.Client
	if b.cluster != nil {
		var err error
		if node, err = b.cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[node]; q != nil {
		return q, nil
	}
	now := time.Now().UnixNano()
	for other, old := range b.queues {
		if now-old.used.Load() > int64(queueUnused) {
			delete(b.queues, other) // the next call to that node makes it anew
		}
	}
	q := &Queue[C]{batcher: b, node: node}
	q.used.Store(now)
	b.queues[node] = q
	return q, nil
}

// Waiting returns how many calls wait to be sent.
func (b *Batcher[C]) Waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		q.mu.Lock()
		n += len(q.waiting)
		q.mu.Unlock()
	}
	return n
}

// Close waits for the workers, and so for the calls that are queued or on their way. A
// later call is still sent, but no Close waits for it.
func (b *Batcher[C]) Close() {
	b.workersMu.Lock()
	b.closed = true
	b.workersMu.Unlock()
	b.workers.Wait()
}

func (b *Batcher[C]) start(worker func()) {
	b.workersMu.Lock()
	defer b.workersMu.Unlock()
	if b.closed {
		go worker()
	} else {
		b.workers.Go(worker)
	}
}

// Queue holds the calls to one server. While batches are on their way to it, later calls
// gather, and go together.
type Queue[C Call] struct {
	batcher *Batcher[C]
	node    *redis.Client // nil but on a cluster

	mu      sync.Mutex
	waiting []C
	workers int          // batches on their way
	took    atomic.Int64 // how long the last answer was in coming, in ns
	used    atomic.Int64 // when it last sent a batch, in ns since 1970
}

// Add queues a call. A worker sends it.
func (q *Queue[C]) Add(c C) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(c)
}

// trySend sends the call from the caller's goroutine, if nothing is on its way to the
// server and the server was quick so far; else it queues the call and returns false. For
// a caller alone this saves a switch of goroutines, which on few cores costs more than
// the rest of the round trip. Done is not called for a call that trySend has sent.
func (q *Queue[C]) trySend(ctx context.Context, c C) (sent bool) {
	q.mu.Lock()
	if q.workers > 0 || q.took.Load() > int64(slowAfter) {
		q.add(c)
		q.mu.Unlock()
		return false
	}
	q.workers++
	q.mu.Unlock()
	q.send(ctx, []C{c})
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 { // calls that came meanwhile: a worker takes over
		q.batcher.start(q.work)
	} else {
		q.workers--
	}
	return true
}

// Withdraw removes a call that waits. It returns false if a worker has taken the call.
// Callers leave in the order in which they came, mostly, so the search is short.
func (q *Queue[C]) Withdraw(c C) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// add queues a call. The mutex is held.
func (q *Queue[C]) add(c C) {
	q.waiting = append(q.waiting, c)
	// For a near server, one batch that gathers during another one's round trip costs less
	// than two.
	gathers := q.batcher.opts.Gather != nil && len(q.waiting) < q.batcher.opts.MinBatch && q.took.Load() < int64(nearWithin)
	if q.workers == 0 || q.workers < MaxWorkers && !gathers {
		q.workers++
		q.batcher.start(q.work)
	}
}

// work sends batches until no call waits.
func (q *Queue[C]) work() {
	var batch []C
	for {
		switch gather := q.batcher.opts.Gather; {
		case len(batch) <= 1:
		case gather != nil && gather() >= busyFrom:
			time.Sleep(gatherFor)
		default:
			// Callers that have just got their answers call again, and go with this batch:
			// in `make bench-locks`, scenario distinct, it is half as large again by that.
			runtime.Gosched()
		}
		batch = q.nextBatch(batch[:0])
		if len(batch) == 0 {
			return
		}
		// The batch has a context of its own: a caller that leaves must not end the calls
		// of others. The client's timeouts bound it.
		q.send(context.Background(), batch)
		for _, c := range batch {
			c.Done()
		}
	}
}

// nextBatch appends the calls of the next batch. When none waits, the worker has ended.
func (q *Queue[C]) nextBatch(batch []C) []C {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, opts := len(q.waiting), &q.batcher.opts
	n := min(all, max(opts.MinBatch, all/MaxWorkers), opts.MaxBatch)
	if n == 0 {
		q.workers--
	}
	batch = append(batch, q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

func (q *Queue[C]) send(ctx context.Context, batch []C) {
	start := time.Now()
	q.used.Store(start.UnixNano())
	q.batcher.opts.Send(ctx, q.node, batch)
	q.took.Store(int64(time.Since(start)))
}

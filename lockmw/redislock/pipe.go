package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipe asks the scripts of many callers in few round trips: while questions are
// on their way to a server, those that come after them gather, and go together. A
// caller alone asks from its own goroutine: on few cores, to wake another costs
// more than the rest of the round trip.
//
// go-redis has an AutoPipeliner for the like, marked experimental. This one is
// here because a caller that leaves has to know whether its question was sent, and
// because several batches on their way fill a server better than one.
type pipe struct {
	client   redis.UniversalClient
	cluster  *redis.ClusterClient // client, if it is one
	replicas int                  // that have to confirm what is asked with confirm
	patience time.Duration        // how long they have for it

	flying errands
	mu     sync.Mutex
	lanes  map[*redis.Client]*lane // by master of a cluster, nil elsewhere
}

// lane holds the questions to one server.
type lane struct {
	pipe *pipe
	node *redis.Client // nil but on a cluster

	mu      sync.Mutex
	waiting []*question
	flights int          // batches on their way
	took    atomic.Int64 // how long the last answer was in coming, in ns
	used    atomic.Int64 // when it last sent a batch, in ns since 1970
}

const (
	// maxFlights: with two, a server works on one batch while this process makes and
	// reads the other. In `make bench-locks`, scenario distinct, four took no more locks a
	// second, in batches half as large, which cost Redis 6 percent more.
	maxFlights = 2
	// A batch has its share of what waits, but not so little that it costs more round
	// trips than it saves time, nor so much that its last waits long for its first.
	minBatch = 32
	maxBatch = 256
	// slowAfter is how long a server may take before callers no longer ask from
	// their own goroutines, where the end of their context finds them only when the
	// answer comes.
	slowAfter = 20 * time.Millisecond
	// nearWithin is how soon a server answers for which a question may wait for the answer
	// to another one.
	nearWithin = time.Millisecond
	// laneUnused is when a lane may be that of a node which has left the cluster.
	laneUnused = 10 * time.Minute
	// After a batch as large as this, the next one gathers for a while, if no goroutine waits:
	// from some 8,000 questions a second on, one is late by up to a millisecond (no timer
	// is exact), and inside Envoy a settlement takes a sixth less CPU.
	busyFrom  = 8
	gatherFor = 50 * time.Microsecond
)

// errNotReplicated says that too few replicas confirmed a grant in time.
var errNotReplicated = errors.New("too few replicas confirmed it")

// do asks and waits for the answer, or until ctx ends. A caller that asks alone, of
// a server that was quick so far, learns that its context was cancelled when the
// answer comes, or after the client's timeouts; a deadline counts at once if the
// client heeds it (redis.Options.ContextTimeoutEnabled). An error for which unseen
// is true leaves open whether the script ran.
func (p *pipe) do(ctx context.Context, q *question) (int64, error) {
	if err := p.run(ctx, q); err != nil {
		return 0, err
	}
	n := q.value()
	q.forget()
	return n, nil
}

// doList is do for a script that answers a list.
func (p *pipe) doList(ctx context.Context, q *question) ([]int64, error) {
	q.list = true
	if err := p.run(ctx, q); err != nil {
		return nil, err
	}
	list := q.several.Val()
	q.forget()
	return list, nil
}

// start asks and does not wait: then is called with the answer, by a goroutine that others
// wait for. It is for a server of which there is one. A question whose context ends before
// it is sent is not sent.
func (p *pipe) start(ctx context.Context, q *question, then func(int64, error)) {
	q.queue, q.ctx, q.then = true, ctx, then
	l, _ := p.lane(ctx, q.lock()) // it fails on a cluster only
	l.add(q)
}

func (p *pipe) run(ctx context.Context, q *question) error {
	if err := ctx.Err(); err != nil {
		return unsentError{err}
	}
	l, err := p.lane(ctx, q.lock())
	if err != nil {
		return unsentError{err}
	}
	if l.add(q) {
		l.exchange(ctx, q)
		l.landed()
		err := overdue(ctx, q.err)
		if err != nil {
			q.forget()
		}
		return err
	}
	select {
	case <-q.done:
		err := q.err
		if err != nil {
			q.forget()
		}
		return err
	case <-ctx.Done():
	}
	if l.withdraw(q) {
		return unsentError{ctx.Err()}
	}
	return abandonedError{ctx.Err(), q}
}

// overdue makes the timeout of a connection whose time the deadline of a context has
// bounded that of the context, which may not have noticed yet.
func overdue(ctx context.Context, err error) error {
	deadline, limited := ctx.Deadline()
	if !errors.Is(err, os.ErrDeadlineExceeded) || !limited || time.Now().Before(deadline) {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}

// unsentError is one of a question that did not leave this process.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// abandonedError is one of a question whose asker left while it was on its way.
type abandonedError struct {
	error
	q *question
}

func (e abandonedError) Unwrap() error { return e.error }

// outcome waits for the answer that nobody waited for, until ctx ends. It reports
// whether the script granted nothing for certain. Several may ask, for a key each.
func (e abandonedError) outcome(ctx context.Context) (nothing bool) {
	select {
	case <-e.q.done:
		e.q.done <- struct{}{} // for the next; the question is not used again
		return e.q.err == nil && e.q.refused()
	case <-ctx.Done():
		return false
	}
}

// unseen reports whether a script may have run although its caller got this
// error: not when the server refused it, nor when it was never sent.
func unseen(err error) bool {
	var unsent unsentError
	var refused redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &unsent):
		return false
	case errors.Is(err, errNotReplicated):
		return true
	case errors.As(err, &refused):
		// A script that failed half way has done what came before.
		return true
	case errors.As(err, &op) && op.Op == "dial":
		return false
	}
	return true
}

// lane returns that of the server which has the key.
func (p *pipe) lane(ctx context.Context, key string) (*lane, error) {
	var node *redis.Client
	if p.cluster != nil {
		var err error
		if node, err = p.cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lanes[node]
	if l == nil {
		now := time.Now().UnixNano()
		for other, old := range p.lanes {
			if now-old.used.Load() > int64(laneUnused) {
				delete(p.lanes, other) // made again if it is needed
			}
		}
		if p.lanes == nil {
			p.lanes = make(map[*redis.Client]*lane)
		}
		l = &lane{pipe: p, node: node}
		l.used.Store(now)
		p.lanes[node] = l
	}
	return l, nil
}

// close waits for the questions on their way.
func (p *pipe) close() { p.flying.close() }

// add queues a question, or reports that the caller is to ask it alone.
func (l *lane) add(q *question) (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights == 0 && !q.queue && l.took.Load() <= int64(slowAfter) {
		l.flights++
		return true
	}
	l.waiting = append(l.waiting, q)
	// Whoever does not wait for the answer comes from a thread that has more to ask: what
	// gathers while one batch is on its way to a near server costs less than two batches.
	gathers := q.then != nil && len(l.waiting) < minBatch && l.took.Load() < int64(nearWithin)
	if l.flights == 0 || l.flights < maxFlights && !gathers {
		l.flights++
		l.pipe.flying.start(l.fly)
	}
	return false
}

// landed ends a caller's own flight. Those who came meanwhile have the next.
func (l *lane) landed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		l.pipe.flying.start(l.fly)
		return
	}
	l.flights--
}

// withdraw reports whether the question had not been sent, and then never is.
func (l *lane) withdraw(q *question) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiting {
		if w == q {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// fly asks what waits until nothing does.
func (l *lane) fly() {
	var batch []*question
	var blocked bool // somebody's goroutine waited for it
	for {
		switch {
		case len(batch) >= busyFrom && !blocked:
			time.Sleep(gatherFor)
		case len(batch) > 1:
			// Those who have just got their answers ask again, and go with this batch: in
			// `make bench-locks`, scenario distinct, a batch is half as large again by that.
			runtime.Gosched()
		}
		l.mu.Lock()
		n := min(len(l.waiting), max(minBatch, len(l.waiting)/maxFlights), maxBatch)
		batch = append(batch[:0], l.waiting[:n]...)
		l.waiting = append(l.waiting[:0], l.waiting[n:]...)
		clear(l.waiting[len(l.waiting):cap(l.waiting)])
		if n == 0 {
			l.flights--
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		batch = slices.DeleteFunc(batch, (*question).dropped)
		if len(batch) == 0 {
			continue
		}
		blocked = slices.ContainsFunc(batch, func(q *question) bool { return q.then == nil })
		// The context of no caller: one that leaves must not end the others' batch.
		// The client's timeouts bound it.
		l.exchange(context.Background(), batch...)
		for _, q := range batch {
			q.answered()
		}
	}
}

// dropped reports whether the asker has gone, who has been told then.
func (q *question) dropped() bool {
	if q.ctx == nil || q.ctx.Err() == nil {
		return false
	}
	q.err = unsentError{q.ctx.Err()}
	q.answered()
	return true
}

// exchange sends the questions and sets their answers.
func (l *lane) exchange(ctx context.Context, batch ...*question) {
	start := time.Now()
	l.used.Store(start.UnixNano())
	l.ask(ctx, batch)
	if l.node != nil && l.pipe.replicas > 0 {
		l.follow(ctx, batch)
	}
	l.took.Store(int64(time.Since(start)))
}

// ask sends the questions, those about scripts that the server does not know twice.
func (l *lane) ask(ctx context.Context, batch []*question) {
	l.send(ctx, batch)
	var again []*question // a server that does not know a script: flushed, restarted, or a replica before
	for _, q := range batch {
		if redis.HasErrorPrefix(q.err, "NOSCRIPT") {
			q.withText()
			again = append(again, q)
		}
	}
	if len(again) > 0 {
		l.send(ctx, again)
	}
}

// follow asks again what a node has referred to another one. The client of a cluster
// does so, but a batch that replicas confirm goes to one node past it. What needs no
// confirmation is left to the client.
func (l *lane) follow(ctx context.Context, batch []*question) {
	elsewhere := make(map[string][]*question) // by address; "": where the client finds it
	for _, q := range batch {
		addr, moved := redis.IsMovedError(q.err)
		_, moving := redis.IsAskError(q.err)
		switch {
		case !q.confirm && (moved || moving):
			elsewhere[""] = append(elsewhere[""], q)
		case moved:
			elsewhere[addr] = append(elsewhere[addr], q)
		}
	}
	for addr, questions := range elsewhere {
		var node *redis.Client
		if addr != "" {
			if node = l.pipe.nodeAt(ctx, addr); node == nil {
				continue
			}
		}
		(&lane{pipe: l.pipe, node: node}).ask(ctx, questions)
	}
}

// nodeAt returns the node of a cluster at an address, or nil. The client reads the map
// of the cluster anew.
func (p *pipe) nodeAt(ctx context.Context, addr string) *redis.Client {
	var found atomic.Pointer[redis.Client]
	_ = p.cluster.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr == addr {
			found.Store(node)
		}
		return nil
	})
	return found.Load()
}

func (l *lane) send(ctx context.Context, batch []*question) {
	confirm := false
	for _, q := range batch {
		q.prepare(ctx)
		confirm = confirm || q.confirm
	}
	confirm = confirm && l.pipe.replicas > 0
	if len(batch) == 1 && !confirm {
		_ = l.pipe.client.Process(ctx, batch[0].command()) // the command has the error
		batch[0].err = batch[0].command().Err()
		return
	}
	// WAIT counts what was written on its own connection, and has no key by which
	// a cluster's client would know where to send it.
	var client redis.Cmdable = l.pipe.client
	if confirm && l.node != nil {
		client = l.node
	}
	var acks *redis.IntCmd
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, q := range batch {
			_ = p.Process(ctx, q.command()) // only queued
		}
		if confirm {
			acks = redis.NewIntCmd(ctx, "wait", l.pipe.replicas, l.pipe.patience.Milliseconds())
			_ = p.Process(ctx, acks)
		}
		return nil
	})
	// A command has its own error, unless the client's last try fails in a way that it
	// would try again: then it has neither an error nor a value.
	lost := err != nil && !slices.ContainsFunc(batch, func(q *question) bool { return q.command().Err() != nil }) &&
		(acks == nil || acks.Err() == nil)
	for _, q := range batch {
		q.err = q.command().Err()
		switch {
		case lost:
			q.err = err
		case q.err != nil || !confirm || !q.confirm:
		case q.refused(): // nothing that a replica could forget
		case acks.Err() != nil:
			q.err = acks.Err()
		case acks.Val() < int64(l.pipe.replicas):
			q.err = errNotReplicated
		}
	}
}

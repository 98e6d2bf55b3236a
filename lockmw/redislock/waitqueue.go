package redislock

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// waitQueues is the registry of the callers that wait for a lock. The callers of one key
// form a queue. Only the first waiter of a queue, its head, asks Redis for the lock: one
// of them at most can get it.
//
// A published release wakes the head. A message can be lost: Redis delivers it at most
// once, and may publish it before it has subscribed us. So the head polls as well.
//
// A release in this process hands the lock to the head (handOver) without publishing it,
// a bounded number of times in a row.
type waitQueues struct {
	locker *Locker
	total  atomic.Int64

	mu        sync.Mutex
	queues    map[string]*waitQueue // by id
	byChannel map[string]*waitQueue // by channel
	perKey    map[string]int
}

// waitQueue is a queue of waiters. A fair lock has one for each waiter, as their order
// is kept in Redis.
type waitQueue struct {
	id, key, channel string

	waiters   []*waiter // first come first
	notBefore time.Time // the lock is left to other processes until then
}

// waiter is one caller. The mutex of waitQueues guards all its fields below wake.
type waiter struct {
	queue *waitQueue
	owner string
	opts  AcquireOption

	wake   func() // something below has changed; nil: no caller
	state  waiterState
	woken  bool   // it is to ask Redis
	asking bool   // an acquire is on its way: a hand-over must not add a second grant
	grant  *Lease // handed over
}

type waiterState int8

const (
	waiting waiterState = iota
	claimed             // out of the queue, about to be handed the lock
	left                // its caller has gone
)

const (
	// maxHandovers and maxHandoverTime bound how often in a row, and for how long, a lock
	// stays in one process while others wait for it. Hand-overs make one contended lock
	// fast: each saves a message and a round trip.
	maxHandovers    = 16
	maxHandoverTime = 100 * time.Millisecond
	// yieldTime is the head start of other processes after that: enough for a
	// message and an acquire.
	yieldTime = 2 * time.Millisecond
)

func (q *waitQueues) start(l *Locker) {
	q.locker = l
	q.queues = make(map[string]*waitQueue)
	q.byChannel = make(map[string]*waitQueue)
	q.perKey = make(map[string]int)
}

// occupied reports whether a caller waits for the key already. The waiters of a fair lock
// have queues of their own, so for them it is always false.
func (q *waitQueues) occupied(key string) bool {
	if q.total.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queues[key] != nil
}

// enqueue adds a waiter at the end of its queue and returns the channel on which the
// release is published. Not ok: as many wait already as may.
func (q *waitQueues) enqueue(key string, w *waiter) (channel string, ok bool) {
	id := key
	channel = Channel(q.locker.opts.Kind, key)
	if q.locker.opts.Kind == Fair {
		channel += ":" + w.owner
		id = channel
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.perKey[key] >= q.locker.opts.MaxWaitersPerKey || q.total.Load() >= int64(q.locker.opts.MaxWaiters) {
		return "", false
	}
	q.total.Add(1)
	q.perKey[key]++
	l := q.queues[id]
	if l == nil {
		l = &waitQueue{id: id, key: key, channel: channel}
		q.queues[id], q.byChannel[channel] = l, l
	}
	w.queue = l
	l.waiters = append(l.waiters, w)
	return channel, true
}

// dequeue removes a waiter. It returns the lease that was handed to it meanwhile, if any.
// A hand-over that is still on its way will find that the caller has left. Next wakes the
// next head to ask Redis at once.
func (q *waitQueues) dequeue(w *waiter, next bool) *Lease {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.woken = w.woken || next
	if w.state == waiting {
		i := slices.Index(w.queue.waiters, w)
		w.queue.waiters = slices.Delete(w.queue.waiters, i, i+1)
		if i == 0 && len(w.queue.waiters) > 0 {
			// The next is the head now. It takes over a wake-up that was not used.
			next := w.queue.waiters[0]
			next.woken = next.woken || w.woken
			next.notify()
		}
	}
	w.state = left
	q.uncount(w)
	return w.grant
}

// uncount removes a waiter from the counts. Its queue ends with the last waiter.
func (q *waitQueues) uncount(w *waiter) {
	l := w.queue
	q.total.Add(-1)
	if q.perKey[l.key]--; q.perKey[l.key] == 0 {
		delete(q.perKey, l.key)
	}
	q.endIfEmpty(l)
}

func (q *waitQueues) endIfEmpty(l *waitQueue) {
	if len(l.waiters) == 0 && q.queues[l.id] == l {
		delete(q.queues, l.id)
		delete(q.byChannel, l.channel)
	}
}

// first reports whether the waiter is the head of its queue.
func (q *waitQueues) first(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(w.queue.waiters) > 0 && w.queue.waiters[0] == w
}

// wake has the head of a channel's queue ask Redis.
func (q *waitQueues) wake(channel string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.byChannel[channel]; l != nil {
		l.wakeHead()
	}
}

func (l *waitQueue) wakeHead() {
	if len(l.waiters) > 0 {
		l.waiters[0].woken = true
		l.waiters[0].notify()
	}
}

// notify wakes a waiter, in a goroutine of its own: the mutex is held.
func (w *waiter) notify() {
	if w.wake != nil {
		go w.wake()
	}
}

// wakeAll has every waiter take its next action, since the Locker is closed.
func (q *waitQueues) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.queues {
		for _, w := range l.waiters {
			w.notify()
		}
	}
}

// wanted reports whether a caller waits for messages on a channel.
func (q *waitQueues) wanted(channel string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byChannel[channel] != nil
}

// action is what a waiter has to do next.
type action struct {
	grant   *Lease
	claimed bool          // a grant is on its way
	head    bool          // poll
	ask     bool          // ask Redis, then call refused or dequeue
	wait    time.Duration // woken, but the lock is left to other processes for so long
}

// nextAction returns what the waiter has to do now. With due it asks Redis even if nothing
// woke it.
func (q *waitQueues) nextAction(w *waiter, now time.Time, due bool) action {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := action{grant: w.grant, claimed: w.state == claimed}
	if w.state != waiting || w.queue.waiters[0] != w {
		return t
	}
	t.head = true
	if w.woken {
		if t.wait = w.queue.notBefore.Sub(now); t.wait <= 0 {
			due = true
		}
	}
	if due {
		t.ask = true
		w.woken, w.asking = false, true
	}
	return t
}

// refused records that Redis did not grant the waiter's acquire.
func (q *waitQueues) refused(w *waiter) {
	q.mu.Lock()
	w.asking = false
	q.mu.Unlock()
}

// handovers is how often in a row a lock went from one waiter of this process to the next. It
// belongs to the lease, not to the queue, which ends whenever none waits.
type handovers struct {
	count int
	from  time.Time // when the first of them was
}

// more counts one more hand-over. False: other processes come first.
func (h handovers) more(now time.Time) (handovers, bool) {
	if h.count == 0 {
		h.from = now
	}
	h.count++
	return h, h.count <= maxHandovers && now.Sub(h.from) <= maxHandoverTime
}

// claim takes the head out of its queue, to hand it the lock of a part that is released.
// It returns nil when no caller waits, when the head is asking Redis or is to look for a stored
// answer, or when other processes come first: then the queue leaves the lock to them for
// yieldTime.
func (q *waitQueues) claim(p *part, able bool) *waiter {
	if p.entry != "" || !able || q.total.Load() == 0 {
		return nil
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.queues[p.key]
	if l == nil || len(l.waiters) == 0 || l.waiters[0].asking || l.waiters[0].opts.stored != "" {
		return nil
	}
	if _, ours := p.handed.more(now); !ours {
		l.notBefore = now.Add(yieldTime)
		return nil
	}
	w := l.waiters[0]
	l.waiters = slices.Delete(l.waiters, 0, 1)
	w.state = claimed
	if len(l.waiters) > 0 {
		l.waiters[0].notify() // to poll from now on
	}
	return w
}

// onReleased acts on a release that was published to so many subscriptions. If ours was
// the only one, no other process waits, and the queue leaves the lock to none.
func (q *waitQueues) onReleased(key string, heard int) {
	if heard > 1 || q.total.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.queues[key]; l != nil && !l.notBefore.IsZero() {
		l.notBefore = time.Time{}
		l.wakeHead()
	}
}

// deliver hands a lease to a claimed waiter, or reports that its caller has left.
func (q *waitQueues) deliver(w *waiter, lease *Lease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.state != claimed {
		return false
	}
	w.grant = lease
	w.notify()
	return true
}

// unclaim puts a claimed waiter back at the head of its queue. It asks Redis for itself,
// by the name of owner.
func (q *waitQueues) unclaim(w *waiter, owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.state != claimed {
		return
	}
	w.state, w.woken, w.owner = waiting, true, owner
	l := w.queue
	if len(l.waiters) == 0 { // the queue ended meanwhile, and perhaps another began
		if other := q.queues[l.id]; other != nil {
			l = other
			w.queue = l
		} else {
			q.queues[l.id], q.byChannel[l.channel] = l, l
		}
	}
	l.waiters = slices.Insert(l.waiters, 0, w)
	w.notify()
}

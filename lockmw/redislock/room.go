package redislock

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// room holds the callers that wait for a lock. Those of one key form a line, and
// only the first in it, the head, speaks to Redis: the lock has room for no more,
// and the others would ask in vain.
//
// The head is woken when a release is published. A message can be lost (Redis
// delivers at most once, and it may come before the subscription stands), so
// nobody relies on being woken: the head polls as well.
//
// A release in this process hands the lock to the first in line (handOver),
// without a word to others, a bounded number of times in a row.
type room struct {
	locker *Locker
	total  atomic.Int64

	mu     sync.Mutex
	lines  map[string]*line // by id
	heard  map[string]*line // by channel
	perKey map[string]int
}

// line is a queue of waiters. A fair lock has one for each waiter, as their order
// is kept in Redis.
type line struct {
	id, key, channel string

	seats     []*seat   // first come first
	notBefore time.Time // it is others' turn until then
}

// seat is one caller's place. Its fields but the first ones are guarded by the
// room's mu.
type seat struct {
	line  *line
	owner string
	opts  AcquireOption

	signal chan struct{} // something below has changed
	wake   func()        // instead of signal, in a goroutine of its own; nil: signal
	state  seatState
	try    bool   // woken: ask Redis
	asking bool   // a question is on its way: two grants for one seat must not cross
	grant  *Lease // handed over
}

type seatState int8

const (
	waiting seatState = iota
	claimed           // out of the line, about to be handed the lock
	left              // its caller has gone
)

const (
	// maxTurns and maxTurnsTime bound how often in a row, and for how long, a lock
	// stays in one process while others wait for it. They are what makes one
	// contended lock fast: a turn saves a message and a round trip.
	maxTurns     = 16
	maxTurnsTime = 100 * time.Millisecond
	// yieldTime is the head start of other processes after that: enough for a
	// message and a question.
	yieldTime = 2 * time.Millisecond
)

func (r *room) start(l *Locker) {
	r.locker = l
	r.lines = make(map[string]*line)
	r.heard = make(map[string]*line)
	r.perKey = make(map[string]int)
}

// occupied reports whether somebody waits for the key already. A fair lock has no
// line of its own here.
func (r *room) occupied(key string) bool {
	if r.total.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[key] != nil
}

// enter takes a seat at the end of the line, or reports that there is none. It returns
// the channel on which the release is published.
func (r *room) enter(key string, s *seat) (channel string, ok bool) {
	owner := s.owner
	if s.wake == nil {
		s.signal = make(chan struct{}, 1)
	}
	id := key
	channel = Channel(r.locker.opts.Kind, key)
	if r.locker.opts.Kind == Fair {
		channel += ":" + owner
		id = channel
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.perKey[key] >= r.locker.opts.MaxWaitersPerKey || r.total.Load() >= int64(r.locker.opts.MaxWaiters) {
		return "", false
	}
	r.total.Add(1)
	r.perKey[key]++
	l := r.lines[id]
	if l == nil {
		l = &line{id: id, key: key, channel: channel}
		r.lines[id], r.heard[channel] = l, l
	}
	s.line = l
	l.seats = append(l.seats, s)
	return channel, true
}

// leave gives the seat up. It returns the lease that was handed to it meanwhile,
// if any. A hand-over that is still on its way will find that the caller has
// gone. Next tells whether the next in line has reason to ask at once.
func (r *room) leave(s *seat, next bool) *Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.try = s.try || next
	if s.state == waiting {
		i := slices.Index(s.line.seats, s)
		s.line.seats = slices.Delete(s.line.seats, i, i+1)
		if i == 0 && len(s.line.seats) > 0 {
			// The next is the head now. It takes over a wake-up that was not used.
			next := s.line.seats[0]
			next.try = next.try || s.try
			next.notify()
		}
	}
	s.state = left
	r.gone(s)
	return s.grant
}

// gone counts the seat out. Its line ends with the last.
func (r *room) gone(s *seat) {
	l := s.line
	r.total.Add(-1)
	if r.perKey[l.key]--; r.perKey[l.key] == 0 {
		delete(r.perKey, l.key)
	}
	r.endIfEmpty(l)
}

func (r *room) endIfEmpty(l *line) {
	if len(l.seats) == 0 && r.lines[l.id] == l {
		delete(r.lines, l.id)
		delete(r.heard, l.channel)
	}
}

// first reports whether the seat is the head of its line.
func (r *room) first(s *seat) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(s.line.seats) > 0 && s.line.seats[0] == s
}

// wake has the head of a line ask Redis, since its channel was spoken on.
func (r *room) wake(channel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.heard[channel]; l != nil {
		l.wakeHead()
	}
}

func (l *line) wakeHead() {
	if len(l.seats) > 0 {
		l.seats[0].try = true
		l.seats[0].notify()
	}
}

func (s *seat) notify() {
	if s.wake != nil {
		go s.wake()
		return
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// wakeAll has every caller look again, since the Locker is closed.
func (r *room) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		for _, s := range l.seats {
			s.notify()
		}
	}
}

// wanted reports whether somebody waits for what is said on a channel.
func (r *room) wanted(channel string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard[channel] != nil
}

// turn is what a waiter has to do.
type turn struct {
	grant   *Lease
	claimed bool          // a grant is on its way
	head    bool          // poll
	ask     bool          // ask Redis, then say so by refused or leave
	wait    time.Duration // woken, but it is others' turn for so long
}

// look returns what the seat's caller has to do now. Due tells that it is to ask
// even if nothing woke it.
func (r *room) look(s *seat, now time.Time, due bool) turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := turn{grant: s.grant, claimed: s.state == claimed}
	if s.state != waiting || s.line.seats[0] != s {
		return t
	}
	t.head = true
	if s.try {
		if t.wait = s.line.notBefore.Sub(now); t.wait <= 0 {
			due = true
		}
	}
	if due {
		t.ask = true
		s.try, s.asking = false, true
	}
	return t
}

// refused tells that the seat's question was answered with no.
func (r *room) refused(s *seat) {
	r.mu.Lock()
	s.asking = false
	r.mu.Unlock()
}

// handovers is how often in a row a lock went from one waiter of this process to the next. It
// belongs to the lease, not to the line, which ends whenever none waits.
type handovers struct {
	count int
	from  time.Time // when the first of them was
}

// more counts one more at a time. False: it is others' turn.
func (h handovers) more(now time.Time) (handovers, bool) {
	if h.count == 0 {
		h.from = now
	}
	h.count++
	return h, h.count <= maxTurns && now.Sub(h.from) <= maxTurnsTime
}

// claim takes the first in line out of it, to hand it the lock of a part that is
// given up. It returns nil when nobody waits, or when it is others' turn; the
// line then keeps back for a moment.
func (r *room) claim(p *part, able bool) *seat {
	if p.entry != "" || !able || r.total.Load() == 0 {
		return nil
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[p.key]
	if l == nil || len(l.seats) == 0 || l.seats[0].asking {
		return nil
	}
	if _, ours := p.handed.more(now); !ours {
		l.notBefore = now.Add(yieldTime)
		return nil
	}
	s := l.seats[0]
	l.seats = slices.Delete(l.seats, 0, 1)
	s.state = claimed
	s.notify()
	if len(l.seats) > 0 {
		l.seats[0].notify() // to poll from now on
	}
	return s
}

// let tells the line that a release was published to so many subscriptions. When
// ours was the only one, nobody else waits, and the line need not keep back.
func (r *room) let(key string, heard int) {
	if heard > 1 || r.total.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lines[key]; l != nil && !l.notBefore.IsZero() {
		l.notBefore = time.Time{}
		l.wakeHead()
	}
}

// deliver hands a lease to a claimed seat, or reports that its caller has gone.
func (r *room) deliver(s *seat, lease *Lease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.state != claimed {
		return false
	}
	s.grant = lease
	s.notify()
	return true
}

// unclaim puts a claimed seat back at the head of its line, to ask for itself by
// the name of owner.
func (r *room) unclaim(s *seat, owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.state != claimed {
		return
	}
	s.state, s.try, s.owner = waiting, true, owner
	l := s.line
	if len(l.seats) == 0 { // ended meanwhile, and perhaps another began
		if other := r.lines[l.id]; other != nil {
			l = other
			s.line = l
		} else {
			r.lines[l.id], r.heard[l.channel] = l, l
		}
	}
	l.seats = slices.Insert(l.seats, 0, s)
	s.notify()
}

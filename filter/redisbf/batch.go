package redisbf

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxFlights of one server at a time: with two, it works on one while this process
// makes and reads the other.
const maxFlights = 2

// lanes are the ways to the servers.
type lanes struct {
	set *Set
	wg  sync.WaitGroup

	mu     sync.Mutex
	byNode map[*redis.Client]*lane // by master of a cluster, nil elsewhere
	closed bool
}

// lane gathers the questions to one server: while a flight is on its way, those
// that come wait, and go together.
type lane struct {
	wg *sync.WaitGroup

	mu      sync.Mutex
	waiting []*question
	byID    map[string]*question // those of waiting
	flights int
	closed  bool
}

// question is one ID that somebody asks for.
type question struct {
	id     string
	askers int // guarded by the lane
	index  int // in waiting, guarded by the lane

	done   chan struct{} // closed when the answer is there
	answer Answer
	err    error
}

// Ask asks for one ID. Callers share round trips: what is asked while a server is
// busy with others goes in one pipeline, and an ID that several ask for goes once.
// An answer is always one that Redis gave after the call. It blocks until then, or
// until ctx ends, which leaves the other callers alone; the client's timeouts
// bound it as well. An error comes with Unknown.
func (s *Set) Ask(ctx context.Context, id string) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Unknown, err
	}
	if err := s.refuses(id); err != nil {
		return Unknown, err
	}
	l, err := s.lanes.of(ctx, s.kind.keys(s.hash.shard(id))[0])
	if err != nil {
		return Unknown, err
	}
	q, err := l.join(s, id)
	if err != nil {
		return Unknown, err
	}
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		l.leave(q)
		return Unknown, ctx.Err()
	}
}

// of returns the lane to the server that has a key.
func (ls *lanes) of(ctx context.Context, key string) (*lane, error) {
	var node *redis.Client
	if ls.set.cluster != nil {
		var err error
		if node, err = ls.set.cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil, errClosed
	}
	l := ls.byNode[node]
	if l == nil {
		if ls.byNode == nil {
			ls.byNode = make(map[*redis.Client]*lane)
		}
		l = &lane{wg: &ls.wg, byID: make(map[string]*question)}
		ls.byNode[node] = l
	}
	return l, nil
}

func (ls *lanes) close() {
	ls.mu.Lock()
	ls.closed = true
	for _, l := range ls.byNode {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
	}
	ls.mu.Unlock()
	ls.wg.Wait()
}

// join returns the question for an ID: one that waits already, whose answer will be
// as fresh as that of a new one, or a new one. One on its way may have been
// answered before this call.
func (l *lane) join(s *Set, id string) (*question, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if q := l.byID[id]; q != nil {
		q.askers++
		return q, nil
	}
	q := &question{id: id, askers: 1, index: len(l.waiting), done: make(chan struct{})}
	l.waiting = append(l.waiting, q)
	l.byID[id] = q
	if l.flights < maxFlights {
		l.flights++
		l.wg.Go(func() { l.fly(s) })
	}
	return q, nil
}

// leave takes one asker from a question, and the question from the queue if it was
// the last.
func (l *lane) leave(q *question) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.askers--
	if q.askers > 0 || l.byID[q.id] != q {
		return // or it is on its way, and what it finds is for nobody
	}
	delete(l.byID, q.id)
	last := len(l.waiting) - 1
	l.waiting[q.index] = l.waiting[last]
	l.waiting[q.index].index = q.index
	l.waiting[last] = nil
	l.waiting = l.waiting[:last]
}

// board takes what waits, as far as there is room, or ends the flights of this
// goroutine.
func (l *lane) board() []*question {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.flights--
		return nil
	}
	n := min(len(l.waiting), maxFlight)
	batch := append([]*question(nil), l.waiting[:n]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	for i, q := range l.waiting {
		q.index = i
	}
	for _, q := range batch {
		delete(l.byID, q.id)
	}
	return batch
}

// fly asks what waits until nothing does.
func (l *lane) fly(s *Set) {
	var ids []string
	for batch := l.board(); batch != nil; batch = l.board() {
		ids = ids[:0]
		for _, q := range batch {
			ids = append(ids, q.id)
		}
		groups, places := s.groups(ids)
		// The context of no caller: one that leaves must not end the others' flight.
		s.exchange(context.Background(), groups)
		for i, q := range batch {
			q.answer, q.err = places[i].group.answers[places[i].index], places[i].group.err
			close(q.done)
		}
	}
}

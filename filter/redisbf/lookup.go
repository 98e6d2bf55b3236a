package redisbf

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/redisbatch"
)

// lookup is one ID that callers ask for.
type lookup struct {
	id      string
	queue   *redisbatch.Queue[*lookup]
	callers int // guarded by the mutex of lookups

	done   chan struct{} // closed when the answer is there
	answer presence.Answer
	err    error
}

// Done implements [redisbatch.Call].
func (l *lookup) Done() { close(l.done) }

// lookups are those of a set that wait to be sent. Callers that ask for the same ID
// share one.
type lookups struct {
	set     *Set
	batcher *redisbatch.Batcher[*lookup]

	mu     sync.Mutex
	byID   map[string]*lookup
	closed bool
}

func (ls *lookups) start(s *Set) {
	ls.set, ls.byID = s, make(map[string]*lookup)
	ls.batcher = redisbatch.New(redisbatch.Options[*lookup]{
		Client: s.client, MinBatch: maxLookups, MaxBatch: maxLookups, Send: ls.send,
	})
}

// Ask asks for one ID. Callers share round trips: lookups that come while a server is
// busy with others go in one pipeline, and an ID that several callers ask for goes once.
// An answer is always one that Redis gave after the call. It blocks until then, or
// until ctx ends, which leaves the other callers alone; the client's timeouts
// bound it as well. An error comes with Unknown.
func (s *Set) Ask(ctx context.Context, id string) (presence.Answer, error) {
	if err := ctx.Err(); err != nil {
		return presence.Unknown, err
	}
	if err := s.refuses(id); err != nil {
		return presence.Unknown, err
	}
	queue, err := s.lookups.batcher.Queue(ctx, s.kind.keys(s.hash.shard(id))[0])
	if err != nil {
		return presence.Unknown, err
	}
	l, err := s.lookups.join(queue, id)
	if err != nil {
		return presence.Unknown, err
	}
	select {
	case <-l.done:
		return l.answer, l.err
	case <-ctx.Done():
		s.lookups.leave(l)
		return presence.Unknown, ctx.Err()
	}
}

// join returns the lookup of an ID: one that was not sent yet, whose answer will be as
// fresh as that of a new one, or a new one. Redis may have answered one on its way before
// this call.
func (ls *lookups) join(queue *redisbatch.Queue[*lookup], id string) (*lookup, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil, errClosed
	}
	if l := ls.byID[id]; l != nil {
		l.callers++
		return l, nil
	}
	l := &lookup{id: id, queue: queue, callers: 1, done: make(chan struct{})}
	ls.byID[id] = l
	queue.Add(l)
	return l, nil
}

// leave takes one caller from a lookup. The last one withdraws it, unless a worker has
// taken it meanwhile: then its answer is dropped.
func (ls *lookups) leave(l *lookup) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.callers--
	if l.callers == 0 && ls.byID[l.id] == l {
		delete(ls.byID, l.id)
		l.queue.Withdraw(l)
	}
}

// send sends a batch. A caller may still join a lookup after a worker has taken it and
// before send closes it: Redis answers that caller later, too.
func (ls *lookups) send(ctx context.Context, _ *redis.Client, batch []*lookup) {
	ids := make([]string, len(batch))
	ls.mu.Lock()
	for i, l := range batch {
		ids[i] = l.id
		if ls.byID[l.id] == l { // not the next one, after all callers of this one left
			delete(ls.byID, l.id)
		}
	}
	ls.mu.Unlock()
	groups, positions := ls.set.groups(ids)
	ls.set.exchange(ctx, groups)
	for i, l := range batch {
		p := positions[i]
		l.answer, l.err = p.group.answers[p.index], p.group.err
	}
}

// close waits for the lookups that are queued or on their way.
func (ls *lookups) close() {
	ls.mu.Lock()
	ls.closed = true
	ls.mu.Unlock()
	ls.batcher.Close()
}

package loader

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/rediskey"
	"github.com/ordergate/ordergate/internal/timeouts"
	"github.com/ordergate/ordergate/internal/wait"
)

// The answer to a create may name no order, or there may be no order. [Loader.CaughtUp] then has
// the follower of the table, which may be in another process, query where the database's log ends.
// It waits until the follower has passed on everything before that. So the client gets the answer
// when every instance has the order.
//
// Requests and replies are lists in Redis, beside the change log: they need no other rights than it
// does. A lost one only costs the wait.

const (
	// requestExpiry is after how long Redis drops requests and replies that were not taken.
	requestExpiry = 10 * time.Second
	// maxRequests bounds the requests that a follower keeps while it lags.
	maxRequests = 1000
	// popFor is how long one command waits for a request or a reply.
	popFor = time.Second
)

func requestsKey(filter, table string) string { return rediskey.Of(filter, "catchup:"+table) }

func replyKey(filter, token string) string { return rediskey.Of(filter, "caughtup:"+token) }

// CaughtUp reports whether every order that its table has by now is known to every instance. It
// blocks for some milliseconds, and timeouts.Append at most: the client waits. Call it only if all tables of the
// filter are followed by their database's log.
func (l *Loader) CaughtUp(ctx context.Context) bool {
	if l.log.Err() != nil {
		return false // nothing is absent
	}
	ctx, cancel := context.WithTimeout(ctx, timeouts.Append)
	defer cancel()
	return l.asker.ask(ctx)
}

// asker asks the followers of a filter's tables. Callers that wait at the same time share a
// question, which goes out after their calls.
type asker struct {
	client redis.UniversalClient
	filter string
	tables []string // the followed ones, by their names in Redis

	turn sync.Mutex // held during a question
	mu   sync.Mutex
	next *question // nil: none waits for its turn
}

type question struct {
	done chan struct{}
	yes  bool // valid once done is closed
}

// ask returns false after an error, or when ctx ends.
func (a *asker) ask(ctx context.Context) bool {
	a.mu.Lock()
	q := a.next
	if q == nil {
		q = &question{done: make(chan struct{})}
		a.next = q
		go a.answer(q)
	}
	a.mu.Unlock()
	select {
	case <-q.done:
		return q.yes
	case <-ctx.Done():
		return false
	}
}

func (a *asker) answer(q *question) {
	defer close(q.done)
	a.turn.Lock()
	defer a.turn.Unlock()
	a.mu.Lock()
	a.next = nil // a later caller needs a later question
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeouts.Append)
	defer cancel()
	token := rand.Text()
	_, err := a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, table := range a.tables {
			push(ctx, p, requestsKey(a.filter, table), token)
		}
		return nil
	})
	// By name: the client of Redis sends a command again whose reply was lost.
	for missing := slices.Clone(a.tables); err == nil && len(missing) > 0; {
		var got []string
		if got, err = a.client.BLPop(ctx, popFor, replyKey(a.filter, token)).Result(); err == nil {
			missing = slices.DeleteFunc(missing, func(table string) bool { return table == got[1] })
		}
	}
	q.yes = err == nil
}

func push(ctx context.Context, p redis.Pipeliner, key, value string) {
	p.RPush(ctx, key, value)
	p.Expire(ctx, key, requestExpiry)
}

// catchUpRequests are the requests that a follower has received, and not replied to. It is safe for
// concurrent use.
type catchUpRequests struct {
	pollNow chan struct{} // of capacity 1, see [follow.Options]

	mu      sync.Mutex
	waiting []catchUpRequest
}

type catchUpRequest struct {
	token string
	at    time.Time // when it was received
}

func newCatchUpRequests() *catchUpRequests {
	return &catchUpRequests{pollNow: make(chan struct{}, 1)}
}

func (r *catchUpRequests) add(token string) {
	r.mu.Lock()
	if len(r.waiting) < maxRequests {
		r.waiting = append(r.waiting, catchUpRequest{token, time.Now()})
	}
	r.mu.Unlock()
	select {
	case r.pollNow <- struct{}{}:
	default: // it will be polled after this request
	}
}

// take removes the requests that were received by a time, and returns their tokens.
func (r *catchUpRequests) take(until time.Time) (tokens []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(r.waiting) && !r.waiting[n].at.After(until) {
		tokens = append(tokens, r.waiting[n].token)
		n++
	}
	r.waiting = r.waiting[n:]
	return tokens
}

// receiveRequests receives requests until ctx ends.
func (f *follower) receiveRequests(ctx context.Context) {
	for ctx.Err() == nil {
		got, err := f.client.BLPop(ctx, popFor, requestsKey(f.filter, f.table)).Result()
		switch {
		case err == nil:
			f.requests.add(got[1]) // after the key
		case !errors.Is(err, redis.Nil):
			_ = wait.For(ctx, popFor)
		}
	}
}

// reply replies to requests after the follower has caught up, once clients may receive what it has
// appended, and what earlier followers have up to its first position.
func (f *follower) reply(ctx context.Context, tokens []string) {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	if f.changes.WaitForPeers(ctx) != nil {
		return
	}
	_, err := f.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, token := range tokens {
			push(ctx, p, replyKey(f.filter, token), f.table)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		f.log.Debug("a create is not notified that the table's changes are known", "error", err)
	}
}

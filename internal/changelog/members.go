package changelog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// acquaintance is how often the members are looked at.
const acquaintance = time.Second

// acquaint keeps what is known of the other members, until the returned function is
// called. It is for a Redis that forgets them, see callBack.
func (l *Log) acquaint(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(acquaintance)
		defer tick.Stop()
		for {
			l.look(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

func (l *Log) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Limit)
	defer cancel()
	names, err := l.client.ZRange(ctx, l.keys[2], 0, -1).Result()
	if err != nil || len(names) == 0 {
		return // what was known may have been lost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = names
}

// Members returns who was a member about a second ago.
func (l *Log) Members() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.known)
}

// callBack makes those members again that a log which was lost has forgotten, with a
// lease that is over: one that is cut off may be telling clients of orders all the
// while, and nobody else would know that it is there. The others renew theirs at once.
func (l *Log) callBack(ctx context.Context) error {
	var gone []redis.Z
	for _, name := range l.Members() {
		if name != l.member.Name() {
			gone = append(gone, redis.Z{Member: name}) // of score 0: it lapsed, nobody knows when
		}
	}
	if len(gone) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Limit)
	defer cancel()
	if err := l.client.ZAddNX(ctx, l.keys[2], gone...).Err(); err != nil {
		return l.readError(err)
	}
	return nil
}

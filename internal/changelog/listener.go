package changelog

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// listenFor is how long a call of XREAD may wait for something new.
const listenFor = time.Second

// news brings what is appended as soon as that is, by a call of XREAD which waits for it. Nothing
// rests on that: what it does not bring, the next read of the log does.
type listener struct {
	log       *Log
	requests  chan uint64  // of capacity 1: behind which entry
	arrived   chan []entry // of capacity 1
	requested bool         // a call is under way; of the reader
	failures  int          // calls one after the other
}

// listen waits for what is asked for, until ctx ends and then for a second at most.
func (l *Log) startListener(ctx context.Context) *listener {
	n := &listener{log: l, requests: make(chan uint64, 1), arrived: make(chan []entry, 1)}
	go func() {
		for ctx.Err() == nil {
			select {
			case from := <-n.requests:
				n.arrived <- n.receive(ctx, from)
			case <-ctx.Done():
			}
		}
	}()
	go l.receiveProgress(ctx)
	return n
}

// ask has the entries behind one brought, if no call is under way.
func (n *listener) request(from uint64) {
	if !n.requested {
		n.requested = true
		n.requests <- from
	}
}

// read returns the IDs behind an entry; none if something else comes first, if the log begins anew, or after
// an error.
func (n *listener) receive(ctx context.Context, from uint64) []entry {
	for ctx.Err() == nil {
		switch messages, err := n.log.readStream(ctx, n.log.keys[0], endOf(from)); {
		case err != nil:
			n.backOff(ctx, err)
			return nil
		case len(messages) > 0:
			n.failures = 0
			return leadingIDs(messages)
		case n.log.position.Load() < from: // the log is another one, which begins anew
			return nil
		}
	}
	return nil
}

// listenTo returns what a stream has behind an entry as soon as there is something, and nothing after
// listenFor.
func (l *Log) readStream(ctx context.Context, stream, from string) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, listenFor+l.opts.Timeout)
	defer cancel()
	streams, err := l.client.XRead(ctx, &redis.XReadArgs{
		Streams: []string{stream, from}, Count: int64(l.opts.PageSize), Block: listenFor,
	}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil || len(streams) == 0:
		return nil, err
	}
	return streams[0].Messages, nil
}

// behindAll is behind all entries of a number, one that somebody else has put there included.
func endOf(number uint64) string {
	return strconv.FormatUint(number, 10) + "-" + strconv.FormatUint(math.MaxUint64, 10)
}

// fail waits before the next try. The first one may have hit a server that was just replaced.
func (n *listener) backOff(ctx context.Context, err error) {
	n.failures++
	pause := n.log.opts.PollEvery
	if n.failures > 1 {
		pause = listenFor
	}
	if n.failures == 2 && ctx.Err() == nil && n.log.Err() == nil {
		n.log.opts.Logger.Warn("new entries of the change log are read late, and answers to creates wait for that: XREAD fails",
			"filter", n.log.filter, "within", n.log.opts.PollEvery, "error", err)
	}
	_ = waitUntil(ctx, time.Now().Add(pause))
}

// plain returns the first of the entries that are IDs.
func leadingIDs(messages []redis.XMessage) (entries []entry) {
	for _, m := range messages {
		id, ok := m.Values["id"]
		nonce, hasNonce := m.Values["n"]
		if !ok || !hasNonce || len(m.Values) != 2 {
			break
		}
		e := parseEntry([]any{m.ID, []any{"id", id, "n", nonce}})
		if e.malformed != "" {
			break
		}
		entries = append(entries, e)
	}
	return entries
}

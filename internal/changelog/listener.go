package changelog

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/runbook"
)

// listenFor is how long a call of XREAD may block.
const listenFor = time.Second

// listener receives new entries as soon as they are appended, by XREAD calls that block. It is an
// optimization: the next read of the log brings all entries that it misses.
type listener struct {
	log       *Log
	requests  chan uint64  // capacity 1: the entry to listen after
	arrived   chan []entry // capacity 1
	requested bool         // a call is under way; only the reader uses it
	failures  int          // in a row
}

// startListener starts to serve requests. It ends within a second after ctx.
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

// request listens for the entries after a number, unless a call is under way.
func (n *listener) request(from uint64) {
	if !n.requested {
		n.requested = true
		n.requests <- from
	}
}

// receive returns the IDs after an entry. It returns none if another kind of entry comes first, if
// the log starts anew, or after an error.
func (n *listener) receive(ctx context.Context, from uint64) []entry {
	for ctx.Err() == nil {
		switch messages, err := n.log.readStream(ctx, n.log.keys[keyLog], endOf(from)); {
		case err != nil:
			n.backOff(ctx, err)
			return nil
		case len(messages) > 0:
			n.failures = 0
			return leadingIDs(messages, n.log.fieldOf(item{field: fieldID}))
		case n.log.position.Load() < from: // the log was replaced by another, which starts anew
			return nil
		}
	}
	return nil
}

// readStream returns the messages of a stream after an entry as soon as there are any. It returns
// none after listenFor.
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

// endOf returns the end of all entries of a number, including entries of other programs.
func endOf(number uint64) string {
	return strconv.FormatUint(number, 10) + "-" + strconv.FormatUint(math.MaxUint64, 10)
}

// backOff waits before the next try. The first error may only mean that a primary was just demoted.
func (n *listener) backOff(ctx context.Context, err error) {
	n.failures++
	pause := n.log.opts.PollEvery
	if n.failures > 1 {
		pause = listenFor
	}
	if n.failures == 2 && ctx.Err() == nil && n.log.Err() == nil {
		n.log.opts.Logger.Warn("new entries of the change log are read late, and answers to creates wait for that: XREAD fails",
			"filter", n.log.filter, "within", n.log.opts.PollEvery, "error", err,
			runbook.FilterNotReady.Do("look at Redis, and at the rights of its user"))
	}
	_ = waitUntil(ctx, time.Now().Add(pause))
}

// leadingIDs returns the entries before the first that has no ID in this field.
func leadingIDs(messages []redis.XMessage, field string) (entries []entry) {
	for _, m := range messages {
		id, ok := m.Values[field]
		nonce, hasNonce := m.Values["n"]
		if !ok || !hasNonce || len(m.Values) != 2 {
			break
		}
		e := parseEntry([]any{m.ID, []any{field, id, "n", nonce}})
		if e.malformed != "" {
			break
		}
		entries = append(entries, e)
	}
	return entries
}

package changelog

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// listenFor is how long a call of XREAD may wait for something new.
const listenFor = time.Second

// news brings what is appended as soon as that is, by a call of XREAD which waits for it. Nothing
// rests on that: what it does not bring, the next read of the log does.
type news struct {
	log     *Log
	asked   chan uint64  // of capacity 1: behind which entry
	arrived chan []entry // of capacity 1
	asking  bool         // a call is under way; of the reader
	deaf    bool         // the last call has failed
}

// listen waits for what is asked for, until ctx ends and then for a second at most.
func (l *Log) listen(ctx context.Context) *news {
	n := &news{log: l, asked: make(chan uint64, 1), arrived: make(chan []entry, 1)}
	go func() {
		for ctx.Err() == nil {
			select {
			case from := <-n.asked:
				n.arrived <- n.read(ctx, from)
			case <-ctx.Done():
			}
		}
	}()
	return n
}

// ask has the entries behind one brought, if no call is under way.
func (n *news) ask(from uint64) {
	if !n.asking {
		n.asking = true
		n.asked <- from
	}
}

// read returns entries behind one, none if others come first, or after an error.
func (n *news) read(ctx context.Context, from uint64) []entry {
	l := n.log
	for ctx.Err() == nil {
		args := &redis.XReadArgs{
			Streams: []string{l.keys[0], l.keys[6], behindAll(from), behindAll(l.knownLeast())},
			Count:   int64(l.opts.PageSize), Block: listenFor,
		}
		within, cancel := context.WithTimeout(ctx, listenFor+l.opts.Limit)
		streams, err := l.client.XRead(within, args).Result()
		cancel()
		switch {
		case err == redis.Nil: // nothing was appended
			continue
		case err != nil:
			n.fail(ctx, err)
			return nil
		}
		n.deaf = false
		var entries []entry
		for _, s := range streams {
			if s.Stream == l.keys[0] {
				entries = plain(s.Messages)
				continue
			}
			for _, m := range s.Messages {
				era, _ := m.Values["era"].(string)
				text, _ := m.Values["least"].(string)
				if least, err := strconv.ParseUint(text, 10, 64); err == nil {
					l.hear(era, least)
				}
			}
		}
		if slices.ContainsFunc(streams, func(s redis.XStream) bool { return s.Stream == l.keys[0] }) {
			return entries
		}
	}
	return nil
}

// behindAll is behind all entries of a number, one that somebody else has put there included.
func behindAll(number uint64) string {
	return strconv.FormatUint(number, 10) + "-" + strconv.FormatUint(math.MaxUint64, 10)
}

// fail waits before the next try.
func (n *news) fail(ctx context.Context, err error) {
	if !n.deaf && ctx.Err() == nil && n.log.Err() == nil {
		n.log.opts.Logger.Warn("new entries of the change log are read late, and answers to creates wait for that: XREAD fails",
			"filter", n.log.filter, "within", n.log.opts.PollEvery, "error", err)
		n.deaf = true
	}
	_ = until(ctx, time.Now().Add(listenFor))
}

// plain returns the first of the entries that are IDs.
func plain(messages []redis.XMessage) (entries []entry) {
	for _, m := range messages {
		id, ok := m.Values["id"]
		nonce, hasNonce := m.Values["n"]
		if !ok || !hasNonce || len(m.Values) != 2 {
			break
		}
		e := parseEntry([]any{m.ID, []any{"id", id, "n", nonce}})
		if e.bad != "" {
			break
		}
		entries = append(entries, e)
	}
	return entries
}

// hear adds IDs as soon as they come, and has more brought. They may come from a server that another one
// has replaced, and follow entries that this reader has not: so the next read brings them once more,
// and page.lua looks whether they are in the log that it reads.
func (r *reader) hear(n *news, entries []entry) {
	n.asking = false
	for _, e := range behind(entries, r.heardUpTo()) {
		if !r.steady || e.seq != r.heardUpTo().seq+1 {
			break
		}
		r.log.apply(e.id)
		r.ahead = e
	}
	if r.answered && r.steady { // else what is there may be brought again and again
		n.ask(r.heardUpTo().seq)
	}
}

// heardUpTo returns the last entry whose ID was added.
func (r *reader) heardUpTo() entry {
	if r.ahead.seq > r.last.seq {
		return r.ahead
	}
	return r.last
}

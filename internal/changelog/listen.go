package changelog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
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
	failed  int          // calls one after the other
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
	go l.hearLeast(ctx)
	return n
}

// ask has the entries behind one brought, if no call is under way.
func (n *news) ask(from uint64) {
	if !n.asking {
		n.asking = true
		n.asked <- from
	}
}

// read returns the IDs behind an entry; none if something else comes first, if the log begins anew, or after
// an error.
func (n *news) read(ctx context.Context, from uint64) []entry {
	for ctx.Err() == nil {
		switch messages, err := n.log.listenTo(ctx, n.log.keys[0], behindAll(from)); {
		case err != nil:
			n.fail(ctx, err)
			return nil
		case len(messages) > 0:
			n.failed = 0
			return plain(messages)
		case n.log.position.Load() < from: // the log is another one, which begins anew
			return nil
		}
	}
	return nil
}

// listenTo returns what a stream has behind an entry as soon as there is something, and nothing after
// listenFor.
func (l *Log) listenTo(ctx context.Context, stream, from string) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, listenFor+l.opts.Limit)
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

// hearLeast brings how far all readers are while a creator waits for them, until ctx ends and then for a
// second at most.
func (l *Log) hearLeast(ctx context.Context) {
	calm := rate.NewLimiter(rate.Inf, burst)
	for {
		select {
		case <-l.spreads:
		case <-ctx.Done():
			return
		}
		for l.spreading.Load() > 0 && ctx.Err() == nil {
			messages, err := l.listenTo(ctx, l.keys[6], behindAll(l.knownLeast()))
			for _, m := range messages {
				era, _ := m.Values["era"].(string)
				text, _ := m.Values["least"].(string)
				if least, err := strconv.ParseUint(text, 10, 64); err == nil {
					l.hear(era, least)
				}
			}
			calm.SetLimit(rate.Every(l.pause() / 4)) // it may grow with each reader that reports
			_ = calm.Wait(ctx)                       // it ends, or its turn has come
			if err != nil {
				_ = until(ctx, time.Now().Add(listenFor))
			}
		}
	}
}

// behindAll is behind all entries of a number, one that somebody else has put there included.
func behindAll(number uint64) string {
	return strconv.FormatUint(number, 10) + "-" + strconv.FormatUint(math.MaxUint64, 10)
}

// fail waits before the next try. The first one may have hit a server that was just replaced.
func (n *news) fail(ctx context.Context, err error) {
	n.failed++
	pause := n.log.opts.PollEvery
	if n.failed > 1 {
		pause = listenFor
	}
	if n.failed == 2 && ctx.Err() == nil && n.log.Err() == nil {
		n.log.opts.Logger.Warn("new entries of the change log are read late, and answers to creates wait for that: XREAD fails",
			"filter", n.log.filter, "within", n.log.opts.PollEvery, "error", err)
	}
	_ = until(ctx, time.Now().Add(pause))
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

// heard is what was heard of behind the last entry that was read.
type heard struct {
	entries []entry
	ends    string // the last of each batch, as page.lua has them
}

// behind returns what is left of it when more was read: all or nothing, as a page has all that was heard of
// or none of it.
func (h heard) behind(last entry) heard {
	if len(h.entries) > 0 && h.entries[0].seq == last.seq+1 {
		return h
	}
	return heard{}
}

// before returns a page as it would be if it began with the last entry that was read, and not with the last
// that was heard of: they are the same that page.lua has found in its log.
func (h heard) before(last entry, page []entry) (entries []entry) {
	if len(h.entries) == 0 {
		return page
	}
	if last.seq > 0 {
		entries = append(entries, last)
	}
	return append(append(entries, h.entries[:len(h.entries)-1]...), page...)
}

// hear adds IDs as soon as they come, and has more brought. They may come from a server that another one
// has replaced, and follow entries that this reader has not. So they count only when page.lua has found the last
// of each batch in the log that it reads. Until then they are what was heard of, and the position stays.
// It reports whether the log is to be read: not when what comes was read meanwhile.
func (r *reader) hear(n *news, entries []entry) bool {
	n.asking = false
	r.ahead = r.ahead.behind(r.last)
	fresh := behind(entries, r.heardUpTo())
	known := len(entries) > 0 && len(fresh) == 0
	for i, e := range fresh {
		if !r.steady || e.seq != r.heardUpTo().seq+1 {
			fresh = fresh[:i]
			break
		}
		r.log.apply(e.id)
		r.ahead.entries = append(r.ahead.entries, e)
	}
	if len(fresh) > 0 {
		end := r.heardUpTo()
		r.ahead.ends += fmt.Sprintf("%d-0 %s ", end.seq, end.nonce)
	}
	return !known
}

// heardUpTo returns the last entry whose ID was added.
func (r *reader) heardUpTo() entry {
	if h := r.ahead.behind(r.last); len(h.entries) > 0 {
		return h.entries[len(h.entries)-1]
	}
	return r.last
}

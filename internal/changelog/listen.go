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

// hearLeast brings how far all readers are while a creator waits for them, until ctx ends and then for a
// second at most.
func (l *Log) receiveProgress(ctx context.Context) {
	calm := rate.NewLimiter(rate.Inf, readBurst)
	for {
		select {
		case <-l.peersKick:
		case <-ctx.Done():
			return
		}
		for l.peerWaiters.Load() > 0 && ctx.Err() == nil {
			messages, err := l.readStream(ctx, l.keys[6], endOf(l.appliedByAll()))
			for _, m := range messages {
				leaseEpoch, _ := m.Values["era"].(string)
				text, _ := m.Values["least"].(string)
				if least, err := strconv.ParseUint(text, 10, 64); err == nil {
					l.noteProgress(leaseEpoch, least)
				}
			}
			calm.SetLimit(rate.Every(l.pause() / 4)) // it may grow with each reader that reports
			_ = calm.Wait(ctx)                       // it ends, or its turn has come
			if err != nil {
				_ = waitUntil(ctx, time.Now().Add(listenFor))
			}
		}
	}
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

// heard is what was heard of behind the last entry that was read.
type receivedEntries struct {
	entries []entry
	ends    string // the last of each batch, as page.lua has them
}

// behind returns what is left of it when more was read: all or nothing, as a page has all that was heard of
// or none of it.
func (h receivedEntries) after(last entry) receivedEntries {
	if len(h.entries) > 0 && h.entries[0].seq == last.seq+1 {
		return h
	}
	return receivedEntries{}
}

// before returns a page as it would be if it began with the last entry that was read, and not with the last
// that was heard of: they are the same that page.lua has found in its log.
func (h receivedEntries) prepend(last entry, page []entry) (entries []entry) {
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
func (r *reader) receive(n *listener, entries []entry) bool {
	n.requested = false
	r.received = r.received.after(r.last)
	fresh := entriesAfter(entries, r.lastReceived())
	known := len(entries) > 0 && len(fresh) == 0
	for i, e := range fresh {
		if !r.caughtUp || e.seq != r.lastReceived().seq+1 {
			fresh = fresh[:i]
			break
		}
		r.log.apply(e.id)
		r.received.entries = append(r.received.entries, e)
	}
	if len(fresh) > 0 {
		end := r.lastReceived()
		r.received.ends += fmt.Sprintf("%d-0 %s ", end.seq, end.nonce)
	}
	return !known
}

// heardUpTo returns the last entry whose ID was added.
func (r *reader) lastReceived() entry {
	if h := r.received.after(r.last); len(h.entries) > 0 {
		return h.entries[len(h.entries)-1]
	}
	return r.last
}

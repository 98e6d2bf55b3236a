package command

import (
	"time"

	"github.com/ordergate/ordergate/internal/accesslog"
	"github.com/ordergate/ordergate/internal/order"
)

// maxOrders bounds the orders that a count tells apart, and those whose last calls are kept twice.
const maxOrders = 500_000

// orderCount counts different orders.
type orderCount struct {
	hashes map[uint64]struct{}
	full   bool // there may be more
}

func newOrderCount() orderCount { return orderCount{hashes: make(map[uint64]struct{})} }

func (c *orderCount) add(hash uint64) {
	if len(c.hashes) >= 2*maxOrders {
		if _, has := c.hashes[hash]; !has {
			c.full = true
		}
		return
	}
	c.hashes[hash] = struct{}{}
}

func (c *orderCount) number() count { return count{int64(len(c.hashes)), c.full} }

// span is when a call ran, in ns since 1970.
type span struct{ start, end int64 }

// maxSpans bounds the calls of one order that may run at once.
const maxSpans = 8

// calls are the last calls of one order.
type calls struct {
	spans []span
	done  int64 // the end of the first call that succeeded; 0: none did
}

// callWindows are the last calls of many orders. It drops those that were used longest ago.
type callWindows struct {
	recent, older map[uint64]*calls
	dropped       bool
}

func newCallWindows() *callWindows { return &callWindows{recent: make(map[uint64]*calls)} }

// of returns the calls of an order. Those of recent orders stay; of the others at least maxOrders.
func (w *callWindows) of(hash uint64) *calls {
	if c := w.recent[hash]; c != nil {
		return c
	}
	c := w.older[hash]
	if c == nil {
		c = &calls{}
	}
	if len(w.recent) >= maxOrders {
		w.dropped = w.dropped || len(w.older) > 0
		w.older, w.recent = w.recent, make(map[uint64]*calls)
	}
	w.recent[hash] = c
	return c
}

// overlaps adds a call, and reports whether another one ran at the same time.
func (c *calls) overlaps(s span) (overlaps bool) {
	soonest := 0
	for i, other := range c.spans {
		overlaps = overlaps || s.start < other.end && other.start < s.end || s.start == other.start
		if other.end < c.spans[soonest].end {
			soonest = i
		}
	}
	if len(c.spans) < maxSpans {
		c.spans = append(c.spans, s)
	} else if s.end > c.spans[soonest].end {
		c.spans[soonest] = s
	}
	return overlaps
}

// spanOf returns when the request of an entry ran. Without a duration, it is the second of its line.
func spanOf(e *accesslog.Entry) span {
	if e.Duration < 0 {
		second := e.Start.Unix() * int64(time.Second)
		return span{second, second + int64(time.Second)}
	}
	start := e.Start.UnixNano()
	return span{start, start + int64(e.Duration)}
}

// keptByDefault is how long a stored answer would be kept by a rule that stores none.
const keptByDefault = 24 * time.Hour

// settle counts a settlement of an order. It reports whether it repeats one that succeeded.
func (r *replayer) settle(rr *ruleReplay, e *accesslog.Entry, key string) (repeats bool) {
	if e.Start.IsZero() {
		rr.Timeless++
		return false
	}
	if e.Duration < 0 {
		rr.BySecond++
	}
	hash, keep := hashOf(rr.Rule, key), keptByDefault
	rr.orders.add(hash)
	c, s := r.settled.of(hash), spanOf(e)
	succeeded := e.Status/100 == 2 && e.Details == accesslog.ViaUpstream
	if o := rr.once; o != nil && len(o.Forget) == 0 {
		keep = o.Keep
		succeeded = false
		for _, of := range o.Statuses {
			succeeded = succeeded || of.Has(e.Status) && e.Details == accesslog.ViaUpstream
		}
	}
	if c.done != 0 && s.start >= c.done && s.start-c.done < int64(keep) {
		rr.Repeated++
		rr.repeats.add(hash)
		repeats = true
	}
	if c.overlaps(s) && !repeats {
		rr.Overlapped++
		rr.overlaps.add(hash)
	}
	if succeeded && (c.done == 0 || s.end-c.done >= int64(keep)) {
		c.done = s.end
	}
	return repeats
}

// doubleClick is the longest time between two creates of one client that may be one.
const doubleClick = 3 * time.Second

// create counts a create that succeeded. Creates are doubled if they name the same order, or none and
// one client sends them within some seconds.
func (r *replayer) create(rr *ruleReplay, e *accesslog.Entry, req *order.Request, id string) {
	if e.Status < 200 || e.Status >= 400 || e.Details != accesslog.ViaUpstream {
		return
	}
	rr.Created++
	within, hash := keptByDefault, hashOf(rr.Rule, id)
	if id == "" {
		if e.Client == "" || e.Start.IsZero() {
			rr.Clientless++
			return
		}
		within, hash = doubleClick, hashOf(rr.Rule, e.Client, req.Host, req.Target, string(req.Body))
	}
	c, s := r.created.of(hash), spanOf(e)
	if c.done != 0 && s.start-c.done <= int64(within) && c.done-s.start <= int64(within) {
		rr.Doubled++
	}
	c.done = s.start
}

// maxMinutes bounds the minutes that are counted: those of two years.
const maxMinutes = 1_100_000

// peakMinute counts the requests of each minute.
type peakMinute struct {
	minutes map[int64]*[2]int64 // all, and those spared
	last    *[2]int64
	at      int64
}

func (p *peakMinute) add(at time.Time, spared bool) {
	if at.IsZero() {
		return
	}
	minute := at.Unix() / 60
	if p.last == nil || p.at != minute {
		n := p.minutes[minute]
		if n == nil {
			if len(p.minutes) >= maxMinutes {
				return
			}
			n = new([2]int64)
			p.minutes[minute] = n
		}
		p.last, p.at = n, minute
	}
	p.last[0]++
	if spared {
		p.last[1]++
	}
}

// most returns the minute in which most requests were spared; false: none was.
func (p *peakMinute) most() (minute int64, all, spared int64, ok bool) {
	for at, n := range p.minutes {
		if n[1] > spared || n[1] == spared && n[1] > 0 && at < minute {
			minute, all, spared, ok = at, n[0], n[1], true
		}
	}
	return minute, all, spared, ok
}

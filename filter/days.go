package filter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Segments are the settings of a filter that forgets old orders by the day. Days
// are those of UTC.
type Segments struct {
	Keep int // days, today included; 1 to 3,660
	// Day returns when an order was made, as its ID says. Nil: IDs do not tell, and
	// belong to the day on which they came to be known here.
	Day func(id string) (time.Time, bool)
	// Older is the answer for an ID whose day is kept no more: Unknown, or Absent
	// where orders of that age are looked up no more. Without Day it has to be
	// Absent: an order that was forgotten cannot be told from one that never was.
	Older Answer
}

// mostDays is ten years.
const mostDays = 3_660

func (s *Segments) check() error {
	switch {
	case s.Keep < 1 || s.Keep > mostDays:
		return fmt.Errorf("keeping %d days: must be 1 to %d", s.Keep, mostDays)
	case s.Day == nil && s.Older != Absent:
		return errors.New("IDs without a date: one that was forgotten can only be absent")
	case s.Older == Maybe:
		return errors.New("an old ID is unknown or absent")
	}
	return nil
}

// Each returns what one day has of a capacity, and of a false positive rate: where all
// days have to be asked, each has its share of the errors too.
func (s *Segments) Each(capacity uint64, rate float64) (uint64, float64) {
	keep := uint64(s.Keep)
	if s.Day == nil {
		rate = -math.Expm1(math.Log1p(-rate) / float64(keep+2))
	}
	return (capacity + keep - 1) / keep, rate
}

// Day is one of UTC, counted from 1970.
type Day int32

// DayOf returns the day of a time.
func DayOf(t time.Time) Day { return Day(t.Unix() / (24 * 60 * 60)) }

// String returns the day as yyyymmdd.
func (d Day) String() string { return time.Unix(int64(d)*24*60*60, 0).UTC().Format("20060102") }

// days is a set with a part for each day. Besides those that are kept there is a
// guard day before them, so that an ordergate whose clock is behind does not miss
// what it takes for kept, and tomorrow, for IDs from clocks that are ahead.
type days struct {
	Segments
	prefix  string
	segment func(name string) (*stack, error)
	failed  func(error) // an ID could not be kept

	view atomic.Pointer[dayView]
	mu   sync.Mutex // held by who replaces the view
}

// dayView is replaced, not changed.
type dayView struct {
	today Day
	parts []*stack // of the guard day and those after it; nil where nothing was added
	stray *stack   // IDs without a day, or of days outside; nil when there are none
}

func newDays(prefix string, s Segments, today Day, segment func(string) (*stack, error), failed func(error)) *days {
	d := &days{Segments: s, prefix: prefix, segment: segment, failed: failed}
	d.view.Store(&dayView{today: today, parts: emptyParts(s.Keep)})
	return d
}

func emptyParts(keep int) []*stack { return make([]*stack, keep+2) }

// guard is the oldest day that anything is kept of.
func (v *dayView) guard() Day { return v.today - Day(len(v.parts)-2) }

// place returns where the part of a day is, or -1 for a day that has none.
func (v *dayView) place(at Day) int {
	if at < v.guard() || at > v.today+1 {
		return -1
	}
	return int(at - v.guard())
}

// find returns the part of a day, nil if there is none.
func (v *dayView) find(at Day) *stack {
	if i := v.place(at); i >= 0 {
		return v.parts[i]
	}
	return nil
}

func (d *days) look(id string) Answer {
	v := d.view.Load()
	if d.Day == nil {
		for i := len(v.parts) - 1; i >= 0; i-- { // newest first: they are asked for most
			if v.parts[i] != nil && v.parts[i].look(id) == Maybe {
				return Maybe
			}
		}
		return Absent
	}
	made, dated := d.Day(id)
	at := DayOf(made)
	if dated {
		if part := v.find(at); part != nil && part.look(id) == Maybe {
			return Maybe
		}
	}
	if v.stray != nil && v.stray.look(id) == Maybe {
		return Maybe
	}
	if dated && at < v.guard() {
		return d.Older
	}
	return Absent
}

func (d *days) add(id string) (in *stack, changed bool) {
	part, err := d.part(id)
	if err != nil {
		d.failed(err)
		return nil, false
	}
	return part.add(id)
}

// place returns where in a view an ID belongs.
func (d *days) place(v *dayView, id string) int {
	if d.Day == nil {
		return v.place(v.today)
	}
	made, dated := d.Day(id)
	if !dated {
		return -1
	}
	return v.place(DayOf(made))
}

// part returns the part that takes an ID, and makes it if need be.
func (d *days) part(id string) (*stack, error) {
	v := d.view.Load()
	if part := v.at(d.place(v, id)); part != nil {
		return part, nil
	}
	return d.make(func(v *dayView) int { return d.place(v, id) })
}

// named returns the part of a snapshot's section, and makes it if need be; nil for a day
// that is kept no more.
func (d *days) named(part string) (*stack, error) {
	at, err := time.Parse(dayLayout, part)
	dated := err == nil
	if dated && DayOf(at) < d.view.Load().guard() {
		return nil, nil
	}
	return d.make(func(v *dayView) int {
		if !dated {
			return -1
		}
		return v.place(DayOf(at))
	})
}

// make returns a part at a place, and makes it if it is not there.
func (d *days) make(place func(*dayView) int) (*stack, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	i := place(v)
	if part := v.at(i); part != nil {
		return part, nil
	}
	next := *v
	if i < 0 {
		var err error
		next.stray, err = d.segment(d.prefix + ":stray")
		if err != nil {
			return nil, err
		}
		d.view.Store(&next)
		return next.stray, nil
	}
	part, err := d.segment(d.prefix + ":" + (v.guard() + Day(i)).String())
	if err != nil {
		return nil, err
	}
	next.parts = slices.Clone(v.parts)
	next.parts[i] = part
	d.view.Store(&next)
	return part, nil
}

// at returns the part at a place, which may not have been made.
func (v *dayView) at(place int) *stack {
	if place < 0 {
		return v.stray
	}
	return v.parts[place]
}

// roll drops what is kept no more once a new day has begun, and returns the names
// of it. A clock that was set back changes nothing.
//
// An ID that is added to a part while that is dropped is lost with it: it was too
// old to be asked for.
func (d *days) roll(today Day) (dropped []string) {
	if today <= d.view.Load().today {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	next := &dayView{today: today, parts: emptyParts(d.Keep), stray: v.stray}
	for i, part := range v.parts {
		if part == nil {
			continue
		}
		if at := next.place(v.guard() + Day(i)); at >= 0 {
			next.parts[at] = part
		} else {
			dropped = append(dropped, part.name)
		}
	}
	d.view.Store(next)
	return dropped
}

func (d *days) stacks() (all []*stack) {
	v := d.view.Load()
	for i := len(v.parts) - 1; i >= 0; i-- {
		if v.parts[i] != nil {
			all = append(all, v.parts[i])
		}
	}
	if v.stray != nil {
		all = append(all, v.stray)
	}
	return all
}

// dayTick is how often a filter looks at the clock.
const dayTick = time.Second

// forget drops what is kept no more, until ctx ends.
func (f *Filter) forget(ctx context.Context) {
	tick := time.NewTicker(dayTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		held, ok := f.memory.current().(*days)
		if !ok {
			return
		}
		if dropped := held.roll(DayOf(f.opts.Now())); len(dropped) > 0 {
			f.log.Info("orders of old days are forgotten", "segments", dropped)
		}
	}
}

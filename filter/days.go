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
const maxDays = 3_660

func (s *Segments) check() error {
	switch {
	case s.Keep < 1 || s.Keep > maxDays:
		return fmt.Errorf("keeping %d days: must be 1 to %d", s.Keep, maxDays)
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
	newPart func(name string) (*scalable, error)
	onError func(error) // an ID could not be kept

	view atomic.Pointer[dayView]
	mu   sync.Mutex // held by who replaces the view
}

// dayView is replaced, not changed.
type dayView struct {
	today    Day
	parts    []*scalable // of the guard day and those after it; nil where nothing was added
	overflow *scalable   // IDs without a day, or of days outside; nil when there are none
}

func newDays(prefix string, s Segments, today Day, newPart func(string) (*scalable, error), onError func(error)) *days {
	d := &days{Segments: s, prefix: prefix, newPart: newPart, onError: onError}
	d.view.Store(&dayView{today: today, parts: emptyParts(s.Keep)})
	return d
}

func emptyParts(keep int) []*scalable { return make([]*scalable, keep+2) }

// guard is the oldest day that anything is kept of.
func (v *dayView) graceDay() Day { return v.today - Day(len(v.parts)-2) }

// place returns where the part of a day is, or -1 for a day that has none.
func (v *dayView) index(at Day) int {
	if at < v.graceDay() || at > v.today+1 {
		return -1
	}
	return int(at - v.graceDay())
}

// find returns the part of a day, nil if there is none.
func (v *dayView) partOf(at Day) *scalable {
	if i := v.index(at); i >= 0 {
		return v.parts[i]
	}
	return nil
}

func (d *days) query(id string) Answer {
	v := d.view.Load()
	if d.Day == nil {
		for i := len(v.parts) - 1; i >= 0; i-- { // newest first: they are asked for most
			if v.parts[i] != nil && v.parts[i].query(id) == Maybe {
				return Maybe
			}
		}
		return Absent
	}
	made, dated := d.Day(id)
	at := DayOf(made)
	if dated {
		if part := v.partOf(at); part != nil && part.query(id) == Maybe {
			return Maybe
		}
	}
	if v.overflow != nil && v.overflow.query(id) == Maybe {
		return Maybe
	}
	if dated && at < v.graceDay() {
		return d.Older
	}
	return Absent
}

func (d *days) add(id string) (in *scalable, changed bool) {
	part, err := d.part(id)
	if err != nil {
		d.onError(err)
		return nil, false
	}
	return part.add(id)
}

// place returns where in a view an ID belongs.
func (d *days) index(v *dayView, id string) int {
	if d.Day == nil {
		return v.index(v.today)
	}
	made, dated := d.Day(id)
	if !dated {
		return -1
	}
	return v.index(DayOf(made))
}

// part returns the part that takes an ID, and makes it if need be.
func (d *days) part(id string) (*scalable, error) {
	v := d.view.Load()
	if part := v.part(d.index(v, id)); part != nil {
		return part, nil
	}
	return d.makePart(func(v *dayView) int { return d.index(v, id) })
}

// named returns the part of a snapshot's section, and makes it if need be; nil for a day
// that is kept no more.
func (d *days) partNamed(part string) (*scalable, error) {
	at, err := time.Parse(dayLayout, part)
	dated := err == nil
	if dated && DayOf(at) < d.view.Load().graceDay() {
		return nil, nil
	}
	return d.makePart(func(v *dayView) int {
		if !dated {
			return -1
		}
		return v.index(DayOf(at))
	})
}

// make returns a part at a place, and makes it if it is not there.
func (d *days) makePart(index func(*dayView) int) (*scalable, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	i := index(v)
	if part := v.part(i); part != nil {
		return part, nil
	}
	next := *v
	if i < 0 {
		var err error
		next.overflow, err = d.newPart(d.prefix + ":stray")
		if err != nil {
			return nil, err
		}
		d.view.Store(&next)
		return next.overflow, nil
	}
	part, err := d.newPart(d.prefix + ":" + (v.graceDay() + Day(i)).String())
	if err != nil {
		return nil, err
	}
	next.parts = slices.Clone(v.parts)
	next.parts[i] = part
	d.view.Store(&next)
	return part, nil
}

// at returns the part at a place, which may not have been made.
func (v *dayView) part(i int) *scalable {
	if i < 0 {
		return v.overflow
	}
	return v.parts[i]
}

// roll drops what is kept no more once a new day has begun, and returns the names
// of it. A clock that was set back changes nothing.
//
// An ID that is added to a part while that is dropped is lost with it: it was too
// old to be asked for.
func (d *days) rollOver(today Day) (dropped []string) {
	if today <= d.view.Load().today {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	next := &dayView{today: today, parts: emptyParts(d.Keep), overflow: v.overflow}
	for i, part := range v.parts {
		if part == nil {
			continue
		}
		if at := next.index(v.graceDay() + Day(i)); at >= 0 {
			next.parts[at] = part
		} else {
			dropped = append(dropped, part.name)
		}
	}
	d.view.Store(next)
	return dropped
}

func (d *days) parts() (all []*scalable) {
	v := d.view.Load()
	for i := len(v.parts) - 1; i >= 0; i-- {
		if v.parts[i] != nil {
			all = append(all, v.parts[i])
		}
	}
	if v.overflow != nil {
		all = append(all, v.overflow)
	}
	return all
}

// dayTick is how often a filter looks at the clock.
const dayCheckEvery = time.Second

// forget drops what is kept no more, until ctx ends.
func (f *Filter) forgetLoop(ctx context.Context) {
	tick := time.NewTicker(dayCheckEvery)
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
		if dropped := held.rollOver(DayOf(f.opts.Now())); len(dropped) > 0 {
			f.log.Info("orders of old days are forgotten", "segments", dropped)
		}
	}
}

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

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/wait"
)

// Segments are the settings of a filter that drops the orders of old days. Days are in UTC.
type Segments struct {
	Keep int // days, today included; 1 to 3,660
	// Day returns the creation time of an order, from its ID. Nil: IDs do not show it, and
	// belong to the day of their arrival here.
	Day func(id string) (time.Time, bool)
	// Older is the answer for an ID of a dropped day: Unknown, or Absent if orders of that age
	// are no longer looked up. Without Day it must be Absent: a dropped order looks like one
	// that never existed.
	Older presence.Answer
}

// maxDays is ten years.
const maxDays = 3_660

func (s *Segments) check() error {
	switch {
	case s.Keep < 1 || s.Keep > maxDays:
		return fmt.Errorf("keeping %d days: must be 1 to %d", s.Keep, maxDays)
	case s.Day == nil && s.Older != presence.Absent:
		return errors.New("IDs without a date: a dropped order can only be absent")
	case s.Older == presence.Maybe:
		return errors.New("the answer for an ID of a dropped day must be Unknown or Absent")
	}
	return nil
}

// Each returns the share of one day in a capacity, and in a false positive rate: without Day a
// lookup reads all days.
func (s *Segments) Each(capacity uint64, rate float64) (uint64, float64) {
	keep := uint64(s.Keep)
	if s.Day == nil {
		rate = -math.Expm1(math.Log1p(-rate) / float64(keep+2))
	}
	return (capacity + keep - 1) / keep, rate
}

// Day is a day in UTC, counted from 1970.
type Day int32

// DayOf returns the day of a time.
func DayOf(t time.Time) Day { return Day(t.Unix() / (24 * 60 * 60)) }

// String returns the day as yyyymmdd.
func (d Day) String() string { return time.Unix(int64(d)*24*60*60, 0).UTC().Format(dayLayout) }

// days is a store with a part for each day. Besides the kept days it has two more: a grace day
// before them, for an instance whose clock is behind, and tomorrow, for IDs from clocks that
// are ahead.
type days struct {
	Segments
	prefix  string
	newPart func(name string) (*scalable, error)
	onError func(error) // called when an ID could not be stored

	view atomic.Pointer[dayView]
	mu   sync.Mutex // held to replace the view
}

// dayView is replaced, not changed.
type dayView struct {
	today    Day
	parts    []*scalable // from the grace day on; nil: the day has no IDs
	overflow *scalable   // IDs without a day, or of other days; nil: there are none
}

func newDays(prefix string, s Segments, today Day, newPart func(string) (*scalable, error), onError func(error)) *days {
	d := &days{Segments: s, prefix: prefix, newPart: newPart, onError: onError}
	d.view.Store(&dayView{today: today, parts: emptyParts(s.Keep)})
	return d
}

func emptyParts(keep int) []*scalable { return make([]*scalable, keep+2) }

// graceDay is the oldest day with a part.
func (v *dayView) graceDay() Day { return v.today - Day(len(v.parts)-2) }

// index returns the index of a day's part, -1 for a day without one.
func (v *dayView) index(at Day) int {
	if at < v.graceDay() || at > v.today+1 {
		return -1
	}
	return int(at - v.graceDay())
}

// partOf returns the part of a day, nil if there is none.
func (v *dayView) partOf(at Day) *scalable {
	if i := v.index(at); i >= 0 {
		return v.parts[i]
	}
	return nil
}

func (d *days) query(id string) presence.Answer {
	v := d.view.Load()
	if d.Day == nil {
		for i := len(v.parts) - 1; i >= 0; i-- { // newest first: most lookups are for those
			if v.parts[i] != nil && v.parts[i].query(id) == presence.Maybe {
				return presence.Maybe
			}
		}
		return presence.Absent
	}
	made, dated := d.Day(id)
	at := DayOf(made)
	if dated {
		if part := v.partOf(at); part != nil && part.query(id) == presence.Maybe {
			return presence.Maybe
		}
	}
	if v.overflow != nil && v.overflow.query(id) == presence.Maybe {
		return presence.Maybe
	}
	if dated && at < v.graceDay() {
		return d.Older
	}
	return presence.Absent
}

func (d *days) add(id string) (in *scalable, changed bool) {
	part, err := d.part(id)
	if err != nil {
		d.onError(err)
		return nil, false
	}
	return part.add(id)
}

// index returns the index of an ID's part in a view, -1 for the overflow part.
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

// part returns the part of an ID, and creates it if necessary.
func (d *days) part(id string) (*scalable, error) {
	v := d.view.Load()
	if part := v.part(d.index(v, id)); part != nil {
		return part, nil
	}
	return d.makePart(func(v *dayView) int { return d.index(v, id) })
}

// partNamed returns the part of a snapshot's section, and creates it if necessary; nil for a
// dropped day.
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

// makePart returns the part at an index, and creates it if necessary.
func (d *days) makePart(index func(*dayView) int) (*scalable, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	i := index(v)
	if part := v.part(i); part != nil {
		return part, nil
	}
	name := partOverflow
	if i >= 0 {
		name = (v.graceDay() + Day(i)).String()
	}
	part, err := d.newPart(d.prefix + ":" + name)
	if err != nil {
		return nil, err
	}
	next := *v
	if i < 0 {
		next.overflow = part
	} else {
		next.parts = slices.Clone(v.parts)
		next.parts[i] = part
	}
	d.view.Store(&next)
	return part, nil
}

// part returns the part at an index, nil if there is none.
func (v *dayView) part(i int) *scalable {
	if i < 0 {
		return v.overflow
	}
	return v.parts[i]
}

// rollOver drops the old parts when a new day has begun, and returns their names. A clock that
// is set back changes nothing.
//
// An ID that is added to a part during its drop is lost with it. It was too old for lookups.
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

// dayCheckEvery is the time between two checks of the clock.
const dayCheckEvery = time.Second

// forgetLoop drops the parts of old days, until ctx ends.
func (f *Filter) forgetLoop(ctx context.Context) {
	for range wait.Every(ctx, dayCheckEvery) {
		held, ok := f.memory.current().(*days)
		if !ok {
			return
		}
		if dropped := held.rollOver(DayOf(f.opts.Now())); len(dropped) > 0 {
			f.log.Info("orders of old days were dropped", "segments", dropped)
		}
	}
}

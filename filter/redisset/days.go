package redisset

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/presence"
)

// days has a set for each day, named "<key>:<yyyymmdd>", as the filter in memory: the kept
// days, a grace day before them, and tomorrow. IDs without a day, or of other days, are in
// "<key>:stray". So are the IDs of a day whose set is missing: a miss was read in both.
type days struct {
	parent   *Set
	client   redis.UniversalClient
	bits     redisbf.Options // of one day
	overflow *redisbf.Set

	mu   sync.Mutex
	days map[filter.Day]*redisbf.Set
}

func newDays(parent *Set, bits redisbf.Options) (*days, error) {
	bits.Capacity, bits.FalsePositiveRate = parent.opts.Segments.Each(bits.Capacity, bits.FalsePositiveRate)
	d := &days{parent: parent, client: parent.client, bits: bits, days: make(map[filter.Day]*redisbf.Set)}
	var err error
	d.overflow, err = d.newSet("stray")
	return d, err
}

func (d *days) newSet(name string) (*redisbf.Set, error) {
	bits := d.bits
	bits.Key += ":" + name
	return redisbf.New(d.client, bits)
}

func (d *days) name() string { return d.bits.Key }

func (d *days) today() filter.Day { return filter.DayOf(d.parent.opts.Now()) }

func (d *days) graceDay() filter.Day { return d.today() - filter.Day(d.parent.opts.Segments.Keep) }

// ofDay returns the set of a day.
func (d *days) ofDay(day filter.Day) (*redisbf.Set, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if set := d.days[day]; set != nil {
		return set, nil
	}
	set, err := d.newSet(day.String())
	if err != nil {
		return nil, err // the same error as for the overflow set
	}
	for old, set := range d.days {
		if old < d.graceDay()-1 { // no longer queried
			delete(d.days, old)
			go set.Close()
		}
	}
	d.days[day] = set
	return set, nil
}

// sets returns the sets that must exist, the newest first.
func (d *days) sets() ([]*redisbf.Set, error) {
	var all []*redisbf.Set
	for day, guard := d.today()+1, d.graceDay(); day >= guard; day-- {
		set, err := d.ofDay(day)
		if err != nil {
			return nil, err
		}
		all = append(all, set)
	}
	return append(all, d.overflow), nil
}

// dayOf returns the day of an ID; false if it has none that is kept.
func (d *days) dayOf(id string) (day filter.Day, kept bool) {
	if d.parent.opts.Segments.Day == nil {
		return d.today(), true
	}
	made, dated := d.parent.opts.Segments.Day(id)
	if !dated {
		return 0, false
	}
	day = filter.DayOf(made)
	return day, day >= d.graceDay() && day <= d.today()+1
}

func (d *days) query(ctx context.Context, id string) (presence.Answer, error) {
	if d.parent.opts.Segments.Day == nil {
		return d.queryAll(ctx, id)
	}
	day, kept := d.dayOf(id)
	if kept {
		set, err := d.ofDay(day)
		if err != nil {
			return presence.Unknown, err
		}
		if a, err := set.Ask(ctx, id); a != presence.Absent || err != nil {
			return a, err
		}
	}
	a, err := d.overflow.Ask(ctx, id)
	if a == presence.Absent && err == nil && day != 0 && day < d.graceDay() {
		return d.parent.opts.Segments.Older, nil
	}
	return a, err
}

// queryAll queries today's set first, which most lookups are for, and then all others at once.
func (d *days) queryAll(ctx context.Context, id string) (presence.Answer, error) {
	sets, err := d.sets()
	if err != nil {
		return presence.Unknown, err
	}
	const today = 1 // after tomorrow
	if a, err := sets[today].Ask(ctx, id); a == presence.Maybe || err != nil {
		return a, err
	}
	answers, errs := make([]presence.Answer, len(sets)), make([]error, len(sets))
	var wg sync.WaitGroup
	for i, set := range sets {
		wg.Go(func() { answers[i], errs[i] = set.Ask(ctx, id) })
	}
	wg.Wait()
	all := presence.Absent
	for _, a := range answers {
		if a == presence.Maybe {
			return presence.Maybe, nil
		}
		if a != presence.Absent {
			all = presence.Unknown
		}
	}
	return all, errors.Join(errs...)
}

func (d *days) add(ctx context.Context, ids []string) error {
	byDay, overflow := make(map[filter.Day][]string), []string(nil)
	for _, id := range ids {
		if day, kept := d.dayOf(id); kept {
			byDay[day] = append(byDay[day], id)
		} else {
			overflow = append(overflow, id)
		}
	}
	for day, ids := range byDay {
		set, err := d.ofDay(day)
		if err != nil {
			return err
		}
		err = set.Add(ctx, ids)
		if errors.Is(err, redisbf.ErrGone) {
			overflow = append(overflow, ids...)
			continue
		}
		if err != nil {
			return err
		}
	}
	if len(overflow) == 0 {
		return nil
	}
	return d.overflow.Add(ctx, overflow)
}

func (d *days) incomplete(ctx context.Context) ([]*redisbf.Set, error) {
	all, err := d.sets()
	if err != nil {
		return nil, err
	}
	return incompleteOf(ctx, all)
}

func (d *days) unmark(ctx context.Context) error {
	return d.each(func(s *redisbf.Set) error { return s.Unmark(ctx) })
}
func (d *days) drop(ctx context.Context) error {
	return d.each(func(s *redisbf.Set) error { return s.Drop(ctx) })
}

func (d *days) each(do func(*redisbf.Set) error) error {
	all, err := d.sets()
	for _, set := range all {
		err = errors.Join(err, do(set))
	}
	return err
}

func (d *days) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, set := range d.days {
		set.Close()
	}
	d.overflow.Close()
}

func (d *days) info(ctx context.Context) (Info, error) {
	all, err := d.sets()
	if err != nil {
		return Info{}, err
	}
	return infoOf(ctx, all)
}

// isRollover reports whether only tomorrow's set is missing of a set that was complete
// yesterday. No ID with that day can be in it yet: earlier it was outside, and went to the
// overflow set.
func (d *days) isRollover(lacking []*redisbf.Set, made int) bool {
	if len(lacking) != 1 || filter.Day(made) != d.today() {
		return false
	}
	tomorrow, err := d.ofDay(d.today() + 1)
	return err == nil && lacking[0] == tomorrow
}

// dropOld drops the segments of the days before the grace day. It goes back far enough for a
// deployment that was away for some days.
func (d *days) dropOld(ctx context.Context) error {
	const back = 30
	for day := d.graceDay() - back; day < d.graceDay(); day++ {
		set, err := d.newSet(day.String())
		if err != nil {
			return err
		}
		err = set.Drop(ctx)
		set.Close()
		if err != nil {
			return fmt.Errorf("dropping %v: %w", day, err)
		}
	}
	return nil
}

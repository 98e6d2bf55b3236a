package redisset

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
)

// days is a set for each day, named "<key>:<yyyymmdd>", as the filter in memory has
// them: those that are kept, a guard day before them, and tomorrow. IDs without a
// day, or of days outside, are in "<key>:stray", and so are those of a day whose set
// is not there (yet): a negative has been looked for in both.
type days struct {
	of     *Set
	client redis.UniversalClient
	bits   redisbf.Options // of one day
	stray  *redisbf.Set

	mu   sync.Mutex
	days map[filter.Day]*redisbf.Set
}

func newDays(of *Set, bits redisbf.Options) (*days, error) {
	bits.Capacity, bits.FalsePositiveRate = of.opts.Segments.Each(bits.Capacity, bits.FalsePositiveRate)
	d := &days{of: of, client: of.client, bits: bits, days: make(map[filter.Day]*redisbf.Set)}
	var err error
	d.stray, err = d.make("stray")
	return d, err
}

func (d *days) make(name string) (*redisbf.Set, error) {
	bits := d.bits
	bits.Key += ":" + name
	return redisbf.New(d.client, bits)
}

func (d *days) name() string { return d.bits.Key }

func (d *days) today() filter.Day { return filter.DayOf(d.of.opts.Now()) }

func (d *days) guard() filter.Day { return d.today() - filter.Day(d.of.opts.Segments.Keep) }

// set returns that of a day.
func (d *days) set(day filter.Day) (*redisbf.Set, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if set := d.days[day]; set != nil {
		return set, nil
	}
	set, err := d.make(day.String())
	if err != nil {
		return nil, err // as that of stray would have been
	}
	for old, set := range d.days {
		if old < d.guard()-1 { // not asked any more
			delete(d.days, old)
			go set.Close()
		}
	}
	d.days[day] = set
	return set, nil
}

// sets returns those that there should be, the newest first.
func (d *days) sets() ([]*redisbf.Set, error) {
	var all []*redisbf.Set
	for day, guard := d.today()+1, d.guard(); day >= guard; day-- {
		set, err := d.set(day)
		if err != nil {
			return nil, err
		}
		all = append(all, set)
	}
	return append(all, d.stray), nil
}

// place returns the day of an ID; false where it has none that is kept.
func (d *days) place(id string) (day filter.Day, kept bool) {
	if d.of.opts.Segments.Day == nil {
		return d.today(), true
	}
	made, dated := d.of.opts.Segments.Day(id)
	if !dated {
		return 0, false
	}
	day = filter.DayOf(made)
	return day, day >= d.guard() && day <= d.today()+1
}

func (d *days) ask(ctx context.Context, id string) (filter.Answer, error) {
	if d.of.opts.Segments.Day == nil {
		return d.askAll(ctx, id)
	}
	day, kept := d.place(id)
	if kept {
		set, err := d.set(day)
		if err != nil {
			return filter.Unknown, err
		}
		if a, err := set.Ask(ctx, id); a != redisbf.Absent || err != nil {
			return answer(a), err
		}
	}
	a, err := d.stray.Ask(ctx, id)
	if a == redisbf.Absent && err == nil && day != 0 && day < d.guard() {
		return d.of.opts.Segments.Older, nil
	}
	return answer(a), err
}

// askAll asks for today first, which most are of, and then for all other days at
// once.
func (d *days) askAll(ctx context.Context, id string) (filter.Answer, error) {
	sets, err := d.sets()
	if err != nil {
		return filter.Unknown, err
	}
	const today = 1 // after tomorrow
	if a, err := sets[today].Ask(ctx, id); a == redisbf.Maybe || err != nil {
		return answer(a), err
	}
	answers, errs := make([]redisbf.Answer, len(sets)), make([]error, len(sets))
	var wg sync.WaitGroup
	for i, set := range sets {
		wg.Go(func() { answers[i], errs[i] = set.Ask(ctx, id) })
	}
	wg.Wait()
	all := redisbf.Absent
	for _, a := range answers {
		if a == redisbf.Maybe {
			return filter.Maybe, nil
		}
		if a != redisbf.Absent {
			all = redisbf.Unknown
		}
	}
	return answer(all), errors.Join(errs...)
}

func (d *days) add(ctx context.Context, ids []string) error {
	byDay, stray := make(map[filter.Day][]string), []string(nil)
	for _, id := range ids {
		if day, kept := d.place(id); kept {
			byDay[day] = append(byDay[day], id)
		} else {
			stray = append(stray, id)
		}
	}
	for day, ids := range byDay {
		set, err := d.set(day)
		if err != nil {
			return err
		}
		err = set.Add(ctx, ids)
		if errors.Is(err, redisbf.ErrGone) {
			stray = append(stray, ids...)
			continue
		}
		if err != nil {
			return err
		}
	}
	if len(stray) == 0 {
		return nil
	}
	return d.stray.Add(ctx, stray)
}

func (d *days) lacking(ctx context.Context) ([]*redisbf.Set, error) {
	all, err := d.sets()
	if err != nil {
		return nil, err
	}
	return unwhole(ctx, all)
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
	d.stray.Close()
}

func (d *days) info(ctx context.Context) (Info, error) {
	all, err := d.sets()
	if err != nil {
		return Info{}, err
	}
	return infoOf(ctx, all)
}

// turned reports whether all that is missing of a set that was whole yesterday is
// the segment of tomorrow: nothing that has its day can be in it yet, since it was
// outside, and went to the strays.
func (d *days) turned(lacking []*redisbf.Set, made int) bool {
	if len(lacking) != 1 || filter.Day(made) != d.today() {
		return false
	}
	tomorrow, err := d.set(d.today() + 1)
	return err == nil && lacking[0] == tomorrow
}

// forget drops the segments of the days before the guard day. It goes back as far
// as one that was away for some days may have to.
func (d *days) forget(ctx context.Context) error {
	const back = 30
	for day := d.guard() - back; day < d.guard(); day++ {
		set, err := d.make(day.String())
		if err != nil {
			return err
		}
		err = set.Drop(ctx)
		set.Close()
		if err != nil {
			return fmt.Errorf("forgetting %v: %w", day, err)
		}
	}
	return nil
}

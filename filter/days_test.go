package filter

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
)

// calendar is a clock for tests, and IDs that begin with their day.
type calendar struct{ seconds atomic.Int64 }

func (c *calendar) now() time.Time  { return time.Unix(c.seconds.Load(), 0) }
func (c *calendar) set(t time.Time) { c.seconds.Store(t.Unix()) }
func (c *calendar) id(by int) string {
	return c.now().AddDate(0, 0, by).UTC().Format("20060102") + "-7"
}
func (c *calendar) day(f *Filter) (d Day) { return f.memory.current().(*days).view.Load().today }

func dateOf(id string) (time.Time, bool) {
	day, _, _ := strings.Cut(id, "-")
	t, err := time.Parse("20060102", day)
	return t, err == nil
}

// noon is a day before a leap day.
var noon = time.Date(2028, 2, 28, 12, 0, 0, 0, time.UTC)

func withDays(t *testing.T, s Segments) (*Filter, *calendar) {
	t.Helper()
	c := &calendar{}
	c.set(noon)
	return mustLoad(t, mustNew(t, Options{Capacity: 10_000, FalsePositiveRate: 1e-9, Segments: &s, Now: c.now})), c
}

// next begins the day after so many.
func (c *calendar) next(f *Filter, by int) []string {
	c.set(c.now().AddDate(0, 0, by))
	return f.memory.current().(*days).rollOver(DayOf(c.now()))
}

func TestDaysByTheID(t *testing.T) {
	for _, older := range []presence.Answer{presence.Unknown, presence.Absent} {
		t.Run(older.String(), func(t *testing.T) {
			f, c := withDays(t, Segments{Keep: 3, Day: dateOf, Older: older})
			for _, d := range []int{-400, -4, -3, -2, 0, 1, 2, 400} {
				f.Add(c.id(d))
			}
			f.Add("no date")
			for _, tc := range []struct {
				day int
				add string
				ask presence.Answer
			}{
				{-400, "", presence.Maybe}, {-400, "1", older}, {-4, "", presence.Maybe}, {-4, "1", older}, // kept as strays
				{-3, "", presence.Maybe}, {-3, "1", presence.Absent}, // the guard day
				{-2, "", presence.Maybe}, {-1, "", presence.Absent}, {0, "", presence.Maybe}, {0, "1", presence.Absent}, {1, "", presence.Maybe},
				{2, "", presence.Maybe}, {2, "1", presence.Absent}, {400, "", presence.Maybe}, {401, "", presence.Absent},
			} {
				mustBe(t, f, c.id(tc.day)+tc.add, tc.ask)
			}
			mustBe(t, f, "no date", presence.Maybe)
			mustBe(t, f, "no date either", presence.Absent)

			today := c.id(0)
			if dropped := c.next(f, 1); fmt.Sprint(dropped) != "[orders:20280225]" {
				t.Errorf("dropped %v", dropped)
			}
			mustBe(t, f, today, presence.Maybe)
			mustBe(t, f, c.id(-4), older) // the guard day of yesterday
			mustBe(t, f, c.id(-3), presence.Maybe)
			if dropped := c.next(f, 3); fmt.Sprint(dropped) != "[orders:20280226 orders:20280228]" {
				t.Errorf("dropped %v", dropped)
			}
			mustBe(t, f, today, older)
			if dropped := c.next(f, -2); dropped != nil || c.day(f) != DayOf(noon)+4 {
				t.Errorf("a clock that was set back dropped %v", dropped)
			}
		})
	}
}

// TestDaysOfEveryZone has orders whose IDs have the day of another time zone. Each is kept for as
// long as one of the same moment that has UTC's.
func TestDaysOfEveryZone(t *testing.T) {
	for _, zone := range []int{-12, -1, 1, 14} {
		for hour := range 24 {
			f, c := withDays(t, Segments{Keep: 1, Day: dateOf, Older: presence.Absent})
			c.set(time.Date(2028, 2, 28, hour, 0, 0, 0, time.UTC))
			id := c.now().Add(time.Duration(zone)*time.Hour).UTC().Format("20060102") + "-7"
			f.Add(id)
			c.set(time.Date(2028, 2, 28, 23, 59, 59, 0, time.UTC))
			f.memory.current().(*days).rollOver(DayOf(c.now()))
			mustBe(t, f, id, presence.Maybe)
		}
	}
}

func TestDaysOfArrival(t *testing.T) {
	f, c := withDays(t, Segments{Keep: 2, Older: presence.Absent})
	for i := range 6 {
		f.Add(fmt.Sprint("order ", i))
		for j := range 6 {
			want := presence.Absent
			if j <= i && j >= i-2 { // two days and the guard day
				want = presence.Maybe
			}
			mustBe(t, f, fmt.Sprint("order ", j), want)
		}
		c.next(f, 1)
	}
	// All days together keep the promise of one.
	if e := f.EstimatedFalsePositiveRate(); e > 1e-9 {
		t.Errorf("rate %g", e)
	}
}

// TestDaysChangeUnderWay has a day begin again and again while eight goroutines
// add and look up.
func TestDaysChangeUnderWay(t *testing.T) {
	f, c := withDays(t, Segments{Keep: 40, Day: dateOf, Older: presence.Unknown})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				id := fmt.Sprintf("%s-%d-%d", c.now().UTC().Format("20060102"), w, i)
				f.Add(id)
				if got := f.MayContain(id); got != presence.Maybe {
					t.Errorf("ID %s: %v", id, got)
				}
			}
		})
	}
	for range 30 {
		c.next(f, 1)
	}
	wg.Wait()
}

func TestSegmentsRefused(t *testing.T) {
	for _, s := range []Segments{
		{Keep: 0, Day: dateOf}, {Keep: 4000, Day: dateOf}, {Keep: 3, Day: dateOf, Older: presence.Maybe}, {Keep: 3, Older: presence.Unknown},
	} {
		if _, err := New("orders", Options{Segments: &s}); err == nil {
			t.Errorf("keep %d, older %v was taken", s.Keep, s.Older)
		}
	}
}

package loader

import (
	"fmt"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
)

// TestGraceInEveryZone: an ID with a date may have the time of any zone. An order that is younger
// than grace is within it, whatever the zone and the second.
func TestGraceInEveryZone(t *testing.T) {
	const grace = 10 * time.Second
	c := &config.Config{
		Filters: map[string]config.Filter{"orders": {Sources: []string{"table"}}},
		Sources: map[string]config.Source{"table": {Grace: grace}},
	}
	now := time.Date(2026, 5, 2, 0, 0, 3, 0, time.UTC)
	within := func(f order.Format) func(id string) bool {
		return withinGraceOf(c, "orders", []order.Format{f}, func() time.Time { return now })
	}
	local := within(order.Format{Kind: order.Timestamped, Min: 1, Max: 19, Layout: "20060102150405"})
	dated := func(at time.Time) string { return at.Format("20060102150405") + "00042" }
	for offset := -12 * time.Hour; offset <= 14*time.Hour; offset += 15 * time.Minute {
		zone := time.FixedZone(offset.String(), int(offset.Seconds()))
		for _, age := range []time.Duration{0, 1, 9 * time.Second, grace - 1, -time.Second, -clockSkew} {
			if id := dated(now.Add(-age).In(zone)); !local(id) {
				t.Errorf("%s, made %v ago at %v from UTC, may be absent", id, age, offset)
			}
		}
		for _, age := range []time.Duration{grace + 2*time.Second, 13 * time.Minute} {
			if id := dated(now.Add(-age).In(zone)); local(id) {
				t.Errorf("%s, made %v ago at %v from UTC, cannot be absent", id, age, offset)
			}
		}
	}
	for id, want := range map[string]bool{
		dated(now.Add(-13 * time.Hour)): false, dated(now.AddDate(-1, 0, 0)): false,
		dated(now.Add(15 * time.Hour)): true, dated(now.AddDate(1, 0, 0)): true,
	} {
		if local(id) != want {
			t.Errorf("%s is within grace: %v", id, !want)
		}
	}
	seconds := within(order.Format{Kind: order.Timestamped, Min: 1, Max: 19, Layout: order.EpochSeconds})
	for age, want := range map[time.Duration]bool{
		grace - 1:           true, // made late in its second
		grace + time.Second: false, 15 * time.Minute: false, -time.Hour: true,
	} {
		if id := fmt.Sprint(now.Add(-age).Unix(), "42"); seconds(id) != want {
			t.Errorf("%s, made %v ago, is within grace: %v", id, age, !want)
		}
	}
}

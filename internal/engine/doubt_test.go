package engine

import (
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// TestMade: an ID tells the latest time at which its order can have been made, by all
// forms that it has; by one that tells no time it may be of any.
func TestMade(t *testing.T) {
	date := order.Format{Kind: order.Timestamped, Min: 1, Max: 20, Layout: "20060102"}
	flake := order.Format{Kind: order.Snowflake, Min: 1, Max: 19, Epoch: time.Unix(0, 0), Shift: 22}
	digits := order.Format{Kind: order.Digits, Min: 1, Max: 9}
	if madeOf([]order.Format{digits}) != nil {
		t.Error("digits tell a time")
	}
	for _, tc := range []struct {
		formats []order.Format
		id      string
		want    time.Time // zero: none
	}{
		{[]order.Format{date}, "2026050142", time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)},
		{[]order.Format{flake}, "4194304", time.UnixMilli(2)},
		{[]order.Format{flake, date}, "2026050142", time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)},
		{[]order.Format{flake, digits}, "4194304", time.Time{}},
		{[]order.Format{flake, digits}, "41943040000", time.UnixMilli(10_001)}, // too long for the other
		{[]order.Format{flake}, "x", time.Time{}},
	} {
		got, ok := madeOf(tc.formats)(tc.id)
		if !got.Equal(tc.want) || ok != !tc.want.IsZero() {
			t.Errorf("%s: %v, %v, want %v", tc.id, got, ok, tc.want)
		}
	}
}

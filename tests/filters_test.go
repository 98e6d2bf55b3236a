package tests

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// capacityLine is that of the example's filter.
var capacityLine = regexp.MustCompile(`(?m)^    capacity: .*$`)

// filterOf gives the filter of the example other settings, separated by semicolons.
func filterOf(settings string) func(string) string {
	return func(yaml string) string {
		return capacityLine.ReplaceAllLiteralString(yaml, "    "+strings.ReplaceAll(settings, "; ", "\n    "))
	}
}

// TestFilterKinds looks up orders that exist and some that do not, in each kind of
// filter that is kept in memory.
func TestFilterKinds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, settings string
		orders         int
		grown          bool
	}{
		{"blocked", "capacity: 5000", 3000, false},
		{"classic", "layout: classic; capacity: 5000", 3000, false},
		{"exact", "kind: exact; capacity: 5000", 3000, false},
		{"layers", "capacity: 1000; expand: {how: layers}", 3000, true},
		{"rebuild", "capacity: 1000; expand: {at_fill: 0.8, by: 2}", 3000, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			backend := newBackend(t)
			s := newStack(t, settings{backend: backend.addr(), orders: tc.orders, gate: filterOf(tc.settings)})
			passed := 0
			for i := range 200 {
				s.must(http.MethodGet, "/orders/"+strconv.Itoa(1+i*tc.orders/200), "").want(t, http.StatusOK, "")
				if a := s.must(http.MethodGet, fmt.Sprintf("/orders/%d", 1_000_000+i), ""); a.status != http.StatusNotFound {
					passed++
				}
			}
			// At one in a thousand, four of 200 are one in 600,000 runs.
			if passed > 4 || tc.name == "exact" && passed > 0 {
				t.Errorf("%d of 200 orders passed that do not exist", passed)
			}
			if tc.grown {
				bedtest.Eventually(t, "room for more than it was made for", func() bool {
					room, err := strconv.ParseFloat(s.metric(`ordergate_filter_capacity{filter="orders"}`), 64)
					return err == nil && room >= float64(tc.orders)
				})
			}
		})
	}
}

package changelog

import (
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestParts has instances with other parts in their IDs on one log. Each takes an order of another
// for a doubt, and none for an ID: an upgrade that adds a part loses no order.
func TestParts(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		with := func(parts ...string) Options { return Options{Parts: parts, Timeout: 10 * time.Second} }
		plain, tenant, again := runInstance(t, s, with()), runInstance(t, s, with("tenant")), runInstance(t, s, with("tenant"))
		two, reversed := runInstance(t, s, with("tenant", "shop")), runInstance(t, s, with("shop", "tenant"))
		all := []*instance{plain, tenant, again, two, reversed}
		wait := func() {
			t.Helper()
			for _, i := range all {
				i.mustWait(t)
			}
		}
		doubts := func(want ...int) {
			t.Helper()
			for n, i := range all {
				found := i.doubted()
				if len(found) != want[n] {
					t.Errorf("instance %d has doubts %+v, want %d", n, found, want[n])
				}
				for _, d := range found {
					if d.Kind != Lost || !d.Orders || d.Entry == (Mark{}) {
						t.Errorf("instance %d has doubt %+v", n, d)
					}
				}
			}
		}
		has := func(id string, want ...*instance) {
			t.Helper()
			for n, i := range all {
				should := false
				for _, w := range want {
					should = should || w == i
				}
				if i.has(id) != should {
					t.Errorf("instance %d has %s: %v", n, id, !should)
				}
			}
		}
		tenant.mustAppend(t, "acme/42")
		wait()
		has("acme/42", tenant, again)
		doubts(1, 0, 0, 1, 1)
		if reason := two.doubted()[0].Reason; !strings.Contains(reason, "has IDs of tenant, and those of this filter are of tenant, shop") {
			t.Errorf("reason %q", reason)
		}
		plain.mustAppend(t, "42")
		wait()
		has("42", plain)
		doubts(1, 1, 1, 2, 2)
		// Not the number of parts alone counts.
		two.mustAppend(t, "acme/7/42")
		wait()
		has("acme/7/42", two)
		doubts(2, 2, 2, 2, 3)

		// What other programs put into the inbox does not name its parts.
		push(t, plain, "bolt/42", "bolt/7/42")
		wait()
		has("bolt/42", plain, tenant, again)
		has("bolt/7/42", plain, two, reversed)
		doubts(2, 3, 3, 3, 4)

		// A later instance reads the same, and so does a second set of the IDs.
		late := runInstance(t, s, with("tenant"))
		late.mustWait(t)
		var ids []string
		if err := late.Replay(t.Context(), func(id string) error { ids = append(ids, id); return nil }); err != nil {
			t.Error(err)
		}
		if got := strings.Join(ids, " "); got != "acme/42 bolt/42" || len(late.doubted()) != 3 {
			t.Errorf("replayed %q, with doubts %+v", got, late.doubted())
		}
	})
}

// TestPartsAreAppendedAgain: a log that has lost an ID with parts gets it again with them.
func TestPartsAreAppendedAgain(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, Options{Parts: []string{"tenant"}, Timeout: 10 * time.Second})
		a.mustAppend(t, "acme/42")
		a.mustWait(t)
		a.client.Del(t.Context(), "ordergate:{orders}:log")
		bedtest.Eventually(t, "the ID is in the log again", func() bool {
			for _, m := range a.client.XRange(t.Context(), "ordergate:{orders}:log", "-", "+").Val() {
				if m.Values["id/tenant"] == "acme/42" {
					return true
				}
			}
			return false
		})
	})
}

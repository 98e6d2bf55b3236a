package tests

import (
	"net/http"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestReadingForAnotherSet has a table read for a larger set that comes to nothing. An
// order that the change log has lost was read into that set alone: catching up finds it
// all the same.
func TestReadingForAnotherSet(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", "layered"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			table := mariaTable(t, bed, 1000)
			gate := table.gate(bed, redis.Addr(), tableSettings{member: "one", kind: kind, filter: ", expand: {by: 2}"})
			gate.becomes(9999, "absent")
			table.exec("DELETE FROM orders WHERE id <= 500") // a larger set would have fewer orders
			table.insert(5000)                               // the log has lost it
			for range 2 {                                    // an overlap apart: the table's end is behind the order
				time.Sleep(1100 * time.Millisecond)
				if status := gate.tryPost("/filters/orders/expand", ""); (status == http.StatusOK) != (kind == "local") {
					t.Fatalf("expanding: %d", status) // memory gets one more layer
				}
			}
			log, err := changelog.New(newClient(t, redis.Addr()), "orders", func(string) {}, changelog.Options{})
			must(t, err)
			recordDoubt(t, log, changelog.Doubt{Kind: changelog.Failover, Reason: "Redis was restarted"})
			if got := gate.answer(5000); got == "absent" {
				t.Error("an order that exists is absent at once")
			}
			gate.becomes(9999, "absent")
			if got := gate.answer(5000); got != "maybe" {
				t.Errorf("an order that exists is %s", got)
			}
		})
	}
}

// TestAbandonedCreateIsForgotten has a create abandoned that may run for less time than
// the next reading has to wait for.
func TestAbandonedCreateIsForgotten(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	table := mariaTable(t, bed, 1000)
	gate := table.gate(bed, redis.Addr(), tableSettings{member: "one"})
	gate.becomes(9999, "absent")
	log, err := changelog.New(newClient(t, redis.Addr()), "orders", func(string) {}, changelog.Options{})
	must(t, err)
	time.Sleep(6 * time.Second) // until it may read the table at once, which it does in vain
	recordDoubt(t, log, changelog.Doubt{Kind: changelog.Running, Reason: "the client left", Orders: true, Since: time.Now()})
	if got := gate.answer(9999); got != "unknown" {
		t.Errorf("an order that may be created yet is %s", got)
	}
	gate.becomes(9999, "absent")
}

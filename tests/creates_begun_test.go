package tests

import (
	"context"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// runningDoubts counts the doubts about creates that may still run. Such a doubt outlives
// every reading that begins within `overlap`.
const runningDoubts = `ordergate_filter_doubts_total{filter="orders",kind="running"}`

// TestLeavesDuringTheAnswerOfACreate has the backend print the beginning of its answer before
// it makes the order, and the client leave then. The call may still run.
func TestLeavesDuringTheAnswerOfACreate(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	bed := bedtest.New(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: mariaTable(t, bed, 10).fromTable()})
	bedtest.Eventually(t, "the filter is certain", s.certainlyAbsent)
	ctx, leave := context.WithCancel(t.Context())
	done := s.inBackground(ctx, "/orders?do=create-slowly&id=3000")
	s.awaitAnswers("2xx", 1)
	leave()
	<-done
	bedtest.Eventually(t, "the call counts as one that may still run", func() bool { return s.metric(runningDoubts) == "1" })
}

// TestAnswerOfACreateInParts has the backend print the beginning of its answer, and the ID
// after longer than ordergate waits for it. The order is made meanwhile, when a reading that
// began with the answer is over.
func TestAnswerOfACreateInParts(t *testing.T) {
	t.Parallel()
	needsModule(t) // beside Envoy, the answer is kept back until it is whole
	b := newBackend(t)
	bed := bedtest.New(t)
	table := mariaTable(t, bed, 10)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(table.fromTable(), edit(t, "overlap: 1s}", "overlap: 1m}"))})
	bedtest.Eventually(t, "the filter is certain", s.certainlyAbsent)
	made := make(chan answer, 1)
	go func() {
		a, _ := s.send(t.Context(), "POST", "/orders?do=create-slowly&id=3000", "")
		made <- a
	}()
	bedtest.Eventually(t, "ordergate waits no longer", func() bool { return s.metric(runningDoubts) == "1" })
	table.insert(3000)
	b.goOn()
	(<-made).want(t, 201, "")
	s.must("GET", "/orders/3000", "").want(t, 200, "")
}

// awaitAnswers waits until Envoy has the headers of so many answers of a class to writes.
func (s *stack) awaitAnswers(class string, n int64) {
	s.t.Helper()
	name := "cluster.backend-writes.upstream_rq_" + class
	bedtest.Eventually(s.t, "the answer begins", func() bool {
		stats, err := s.envoy.Stats(s.t.Context(), name)
		must(s.t, err)
		return stats[name] >= n
	})
}

package tests

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLearnFromHeader has the answer name the new order in a header.
func TestLearnFromHeader(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: func(yaml string) string {
		return bedtest.Replace(yaml, "response_json: orderId", "response_header: x-new-order")
	}})
	s.must("GET", "/orders/1001", "").want(t, 404, "absent")
	s.must("POST", "/orders?do=create&id=1001", "").want(t, 201, "")
	s.must("GET", "/orders/1001", "").want(t, 200, "")
}

// TestLearnFromLargeAnswer has an answer that no buffer holds, or a very large one: it must
// reach the client all the same, and the ID at its beginning be learned.
func TestLearnFromLargeAnswer(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	large := s.second(settings{backend: b.addr(), orders: 10, envoy: edit(t,
		"per_connection_buffer_limit_bytes: 1048576", "per_connection_buffer_limit_bytes: 16777216")})
	for i, st := range []*stack{s, large} {
		id := 1001 + 10*i
		bedtest.Eventually(t, "it has seen the other join", st.certainlyAbsent)
		st.must("GET", fmt.Sprint("/orders/", id), "").want(t, 404, "absent")
		a := st.must("POST", fmt.Sprintf("/orders?do=create&id=%d&size=%d", id, 3_000_000*(i+1)), "")
		if a.status != 201 || len(a.body) < 3_000_000 {
			t.Errorf("answer: %d, %d bytes", a.status, len(a.body))
		}
		st.must("GET", fmt.Sprint("/orders/", id), "").want(t, 200, "")
		st.must("GET", fmt.Sprint("/orders/", id+1), "").want(t, 404, "absent")
	}
}

// TestUnlearnable has a create succeed without an ID that can be read: from then
// on nothing is certainly absent.
func TestUnlearnable(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	s.must("GET", "/orders/1001", "").want(t, 404, "absent")
	s.must("POST", `/orders?do=create&id="A-1"`, "").want(t, 201, "")
	s.must("GET", "/orders/1001", "").want(t, 200, "")
	if n := s.metric(`ordergate_filter_state{filter="orders",state="unknown"}`); n != "1" {
		t.Error("the filter's state does not say so")
	}
}

// TestFailedCreate must not make anybody believe that an order exists, or doubt.
func TestFailedCreate(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	s.must("POST", answering("/orders", 500), "").want(t, 500, "")
	s.must("GET", "/orders/1001", "").want(t, 404, "absent")
}

// TestReadYourWritesAcrossSidecars creates through one ordergate and looks up
// through another at once.
func TestReadYourWritesAcrossSidecars(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	one := newStack(t, settings{backend: b.addr(), orders: 10})
	other := one.second(settings{backend: b.addr(), orders: 10})
	var absent atomic.Int64 // before: nearly all, but for a moment in which a busy machine keeps one from the log
	atOnce(16, func(worker int) {
		for i := range 25 {
			id := fmt.Sprintf("9%03d%03d", worker, i)
			if other.must("GET", "/orders/"+id, "").verdict == "absent" {
				absent.Add(1)
			}
			one.must("POST", "/orders?do=create&id="+id, "").want(t, 201, "")
			other.must("GET", "/orders/"+id, "").want(t, 200, "")
		}
	})
	if n := absent.Load(); n < 200 {
		t.Errorf("%d of 400 orders were absent before they were created", n)
	}
	// And what was learned outlives the process that learned it.
	must(t, one.gate.Stop())
	third := one.second(settings{backend: b.addr(), orders: 10})
	third.must("GET", "/orders/9000000", "").want(t, 200, "")
	third.must("GET", "/orders/8000000", "").want(t, 404, "absent")
}

// TestRestart brings the same sidecar back.
func TestRestart(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	here := settings{backend: b.addr(), orders: 10, gate: edit(t, "  addresses: [", "  member: here\n  addresses: [")}
	s := newStack(t, here)
	s.must("POST", "/orders?do=create&id=1001", "").want(t, 201, "")
	s.gate.Kill()
	again := s.second(here)
	again.must("GET", "/orders/1001", "").want(t, 200, "")
	again.must("GET", "/orders/1002", "").want(t, 404, "absent")
}

// TestEmbedded needs no Redis at all.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: func(yaml string) string {
		before, after, _ := strings.Cut(yaml, "  addresses: [")
		_, after, _ = strings.Cut(after, "\n")
		return before + "  mode: embedded\n" + after
	}})
	s.must("GET", "/orders/1001", "").want(t, 404, "absent")
	s.must("POST", "/orders?do=create&id=1001", "").want(t, 201, "")
	s.must("GET", "/orders/1001", "").want(t, 200, "")
	done := s.inBackground(t.Context(), "/orders/5/settle?do=hang")
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/5/settle") == 1 })
	s.must("POST", "/orders/5/settle", "").want(t, 409, "busy")
	b.goOn()
	<-done
	bedtest.Eventually(t, "the lock is free again", func() bool { return s.must("POST", "/orders/5/settle", "").status == 200 })
}

// TestLearnedResults tells why orders were not learned: what pages is an answer that does not
// name its order, and not a client that leaves, nor a Redis that is away.
func TestLearnedResults(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	results := func() (all string) {
		for _, result := range []string{"ok", "unnamed", "abandoned", "unlogged"} {
			all += s.metric(`ordergate_learned_total{result="`+result+`",rule="order-create"}`) + ","
		}
		return all
	}
	s.must("POST", "/orders?do=create&id=1001", "").want(t, 201, "")
	s.abort(b, "/orders?do=hang")
	b.goOn()
	bedtest.Eventually(t, "one that was left", func() bool { return results() == "1,0,1,0," })
	if *attachment == asSidecar {
		wantNoLine(t, s.gate, "level=ERROR") // a client can leave
	}
	s.must("POST", `/orders?do=create&id="A-1"`, "").want(t, 201, "")
	bedtest.Eventually(t, "one of each", func() bool { return results() == "1,1,1,0," })
	s.server.Kill()
	s.must("POST", "/orders?do=create&id=1002", "").want(t, 201, "")
	bedtest.Eventually(t, "one that was not logged", func() bool { return results() == "1,1,1,1," })
}

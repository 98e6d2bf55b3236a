package envoymodule

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// These tests put what Envoy cannot be made to do on purpose: every order of events, and
// faults of ours, under the race detector, which finds no room in Envoy's process. That
// it works in Envoy is shown by the tests in tests/, with -attachment=module.

func TestLookup(t *testing.T) {
	for _, tc := range []struct {
		path    string
		answer  uint32
		verdict string
	}{
		{"/orders/1", 0, "maybe"}, {"/orders/2", 404, ""}, {"/orders/3", 0, "unknown"}, {"/orders/x", 400, ""},
		{"/orders/4", 0, "unknown"}, {"/orders/5", 404, ""},
	} {
		t.Run(tc.path, func(t *testing.T) {
			b := newBench(t, Options{})
			e, do := b.request("GET", tc.path)
			if do == PassRequest && tc.answer != 0 {
				t.Error("it was not stopped")
			}
			if elsewhere := tc.path == "/orders/2" || tc.path == "/orders/3"; (do == Wait) != elsewhere {
				t.Errorf("%d, though it is in memory: %t", do, !elsewhere)
			}
			b.until("it is decided", func() bool {
				return e.answer != 0 || e.continued > 0 || do == PassRequest
			})
			b.worker.do(func() {
				if e.answer != tc.answer || e.headers[Request].Get(gate.HeaderVerdict) != tc.verdict {
					t.Errorf("answered %d, verdict %q", e.answer, e.headers[Request].Get(gate.HeaderVerdict))
				}
				if e.answer == 0 && e.headers[Request].Get(gate.HeaderFence) != "" {
					t.Error("a forged fence is passed on")
				}
			})
			b.end(e)
		})
	}
}

// TestOneCall has no stream for a request that needs only a verdict, and no query for an order in
// memory.
func TestOneCall(t *testing.T) {
	b := newBench(t, Options{})
	for path, want := range map[string]Action{
		"/orders/1": PassRequest, "/orders/4": PassRequest, "/orders/5": Refuse, "/orders/x": Refuse, "/others": PassRequest,
	} {
		e, do := b.request("GET", path)
		if do != want || e.stream != nil {
			t.Errorf("%s: %d, want %d; a stream: %t", path, do, want, e.stream != nil)
		}
		b.end(e)
	}
	b.adapter.Close(10 * time.Second)
	if n := b.queries(); n != 0 {
		t.Errorf("%d queries", n)
	}
}

// TestLookupEnds has a stream end, or Envoy answer, during its query, and the module end before any
// query has a result.
func TestLookupEnds(t *testing.T) {
	b := newBench(t, Options{})
	left, _ := b.request("GET", "/orders/77")
	b.end(left)
	late, _ := b.request("GET", "/orders/77")
	b.worker.do(func() { late.details = "stream_idle_timeout"; late.respond("408", true) })
	last, do := b.request("GET", "/orders/77")
	if do != Wait {
		t.Errorf("%d, want to wait", do)
	}
	b.until("all are queried", func() bool { return b.queries() == 3 })
	b.adapter.Close(time.Millisecond)
	b.until("the last goes on", func() bool { return last.continued == 1 && last.headers[Request].Get(gate.HeaderVerdict) == "unknown" })
	b.end(late)
	b.end(last)
	if left.continued+late.continued > 0 || left.answer+late.answer > 0 {
		t.Errorf("after its end one was passed on, or answered: %+v, %+v", left, late)
	}
}

// TestNotFound has the backend answer that it has no such order.
func TestNotFound(t *testing.T) {
	for details, want := range map[string]int{"via_upstream": 1, "no_healthy_upstream": 0} {
		b := newBench(t, Options{})
		e, _ := b.request("GET", "/orders/1")
		if e.watchNotFound == 0 {
			t.Fatal("the answer is of no interest")
		}
		b.worker.do(func() {
			e.details, e.attempts = details, 1
			e.headers[Response] = headersOf(":status", "404")
			b.adapter.NotFound(e, e.watchNotFound)
			if len(b.notFound) != want {
				t.Errorf("%s: not found are %v", details, b.notFound)
			}
		})
		b.end(e)
	}
}

// TestNotFoundAfterReload has the rules change between a lookup and its answer. The answer is not
// reported by the new rules, which did not judge the lookup.
func TestNotFoundAfterReload(t *testing.T) {
	b := newBench(t, Options{})
	e, _ := b.request("GET", "/orders/1")
	b.adapter.Use(b.gate(http.StatusLocked))
	b.worker.do(func() {
		e.details, e.attempts = "via_upstream", 1
		e.headers[Response] = headersOf(":status", "404")
		b.adapter.NotFound(e, e.watchNotFound)
		if len(b.notFound) != 0 {
			t.Errorf("not found are %v", b.notFound)
		}
	})
	b.end(e)
}

// TestBody has the order named by a body, which comes in parts, or never.
func TestBody(t *testing.T) {
	for name, tc := range map[string]struct {
		rest   []string // of the body
		ends   bool     // with the last part, otherwise with trailers
		want   Action
		answer uint32
	}{
		"in one part": {[]string{`{"orderId": 42}`}, true, Wait, 0},
		"in two":      {[]string{`{"order`, `Id": 42}`}, true, Wait, 0},
		"trailers":    {[]string{`{"orderId": 42}`}, false, Wait, 0},
		"no order":    {[]string{`{"other": 42}`}, true, Refuse, 400},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			e, do := b.begin("POST", "/settle", false)
			if do != Read {
				t.Fatalf("its body is not read: %d", do)
			}
			b.worker.do(func() {
				for i, part := range tc.rest {
					e.chunk = part
					do = e.on(RequestBody, tc.ends && i == len(tc.rest)-1)
				}
				if !tc.ends {
					do = e.on(RequestTrailers, true)
				}
				if do != tc.want || e.answer != tc.answer {
					t.Errorf("%d, answered %d", do, e.answer)
				}
			})
			if tc.answer == 0 {
				b.lock.Grants <- nil
				b.until("it goes on", func() bool { return e.continued == 1 })
			}
			b.end(e)
		})
	}
}

// TestUse changes the rules while a call waits: it ends under those that it began with.
func TestUse(t *testing.T) {
	b := newBench(t, Options{})
	first, _ := b.request("POST", "/orders/42/settle")
	b.adapter.Use(b.gate(http.StatusLocked))
	second, _ := b.request("POST", "/orders/43/settle")
	b.lock.Grants <- gate.ErrBusy
	b.lock.Grants <- gate.ErrBusy
	b.until("the first is answered", func() bool { return first.answer == http.StatusConflict })
	b.until("the second is answered", func() bool { return second.answer == http.StatusLocked })
	b.end(first)
	b.end(second)
}

// TestSettlementRaces has the lock, the answer and the end come in every order.
func TestSettlementRaces(t *testing.T) {
	known, unsent := "via_upstream", "stream_idle_timeout"
	for name, tc := range map[string]struct {
		does func(b *bench, e *envoy)
		want string // what becomes of the lock
	}{
		"answered": {func(b *bench, e *envoy) {
			b.lock.Grants <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = known, 1; e.respond("200", true) })
			b.end(e)
		}, "release"},
		"the client leaves meanwhile": {func(b *bench, e *envoy) {
			b.lock.Grants <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = "downstream_remote_disconnect", 1 })
			b.end(e)
		}, "hold"},
		"the client leaves before the backend is reached": {func(b *bench, e *envoy) {
			b.lock.Grants <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = "downstream_remote_disconnect", 0 })
			b.end(e)
		}, "release"},
		"the lock crosses the end": {func(b *bench, e *envoy) {
			b.worker.do(func() { // nothing scheduled runs before the end
				b.lock.Grants <- nil
				e.over = true
				e.on(Complete, true)
			})
		}, ""},
		"the lock comes after the end": {func(b *bench, e *envoy) {
			b.end(e)
			b.lock.Grants <- nil
		}, ""},
		"Envoy answers while the lock is waited for": {func(b *bench, e *envoy) {
			b.worker.do(func() { e.details = unsent; e.respond("408", true) })
			b.lock.Grants <- nil
			b.end(e)
		}, ""},
		"refused": {func(b *bench, e *envoy) {
			b.lock.Grants <- gate.ErrBusy
			b.until("it is answered", func() bool { return e.answer == 409 })
			b.end(e)
		}, ""},
		"unavailable": {func(b *bench, e *envoy) {
			b.lock.Grants <- errors.New("no Redis")
			b.until("it is answered", func() bool { return e.answer == 503 && e.why == "ordergate_unavailable" })
			b.end(e)
		}, ""},
		"the lease is lost": {func(b *bench, e *envoy) {
			b.lock.Grants <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.lock.Lose()
			b.until("it is ended", func() bool { return e.answer == 503 && e.why == "ordergate_lost" })
			b.end(e)
		}, "hold"},
		"the lease is lost during the answer": {func(b *bench, e *envoy) {
			b.lock.Grants <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = known, 1; e.respond("200", false) })
			b.lock.Lose()
			b.worker.do(func() { e.more("x", true) })
			b.end(e)
		}, "release"},
		"the answer ends": {func(b *bench, e *envoy) {
			b.lock.Grants <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = known, 1; e.respond("200", false); e.more("x", true) })
			b.end(e)
		}, "release"},
		"the answer ends with trailers": {func(b *bench, e *envoy) {
			b.lock.Grants <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = known, 1; e.respond("200", false); e.on(ResponseTrailers, true) })
			b.end(e)
		}, "release"},
		"the client leaves within the answer": {func(b *bench, e *envoy) {
			b.lock.Grants <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = known, 1; e.respond("200", false); e.more("x", false) })
			b.end(e)
		}, "hold"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			e, do := b.request("POST", "/orders/42/settle")
			if do != Wait {
				t.Fatalf("it does not wait: %d", do)
			}
			tc.does(b, e)
			want := []string{"acquire 42, " + tc.want}
			if tc.want == "" { // a lock that was granted too late is released; one that was not needs nothing
				want = []string{"", "acquire 42", "acquire 42, gave up", "acquire 42, release"}
			}
			b.until("the lock is done with", func() bool { return slices.Contains(want, b.lock.Journal.Short()) })
			b.worker.do(func() {
				if tc.want == "" && e.continued > 0 {
					t.Error("the request was passed on")
				}
			})
		})
	}
}

// TestResponse has the details and the attempts that Envoy reports, or does not report.
func TestResponse(t *testing.T) {
	for _, tc := range []struct {
		details  string
		attempts int
		mute     bool
		want     gate.Outcome
	}{
		{"via_upstream", 1, false, gate.OutcomeKnown},
		{"via_upstream", 2, false, gate.OutcomeUnknown},
		{"response_timeout", 1, false, gate.OutcomeUnknown},
		{"no_healthy_upstream", 1, false, gate.OutcomeNotForwarded},
		{"direct_response", 0, true, gate.OutcomeNotForwarded},
		// An Envoy that numbers its attributes in another way must not have a lock
		// released that is needed.
		{"via_upstream", 0, true, gate.OutcomeUnknown},
		{"response_timeout", 0, true, gate.OutcomeUnknown},
		{"downstream_remote_disconnect", 0, true, gate.OutcomeUnknown},
		{"", 0, true, gate.OutcomeUnknown},
	} {
		e := &envoy{details: tc.details, attempts: tc.attempts, mute: tc.mute}
		if got := response(e, headersOf(":status", "500"), false).Outcome(); got != tc.want {
			t.Errorf("%q after %d attempts (not reported: %t): %s, want %s", tc.details, tc.attempts, tc.mute, got, tc.want)
		}
	}
}

// TestManyStreams has a lot of them at a time, each of which ends whenever it likes.
func TestManyStreams(t *testing.T) {
	b := newBench(t, Options{})
	close(b.filter.Learning)
	close(b.lock.Grants) // all are granted
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			for i := range 200 {
				path := []string{"/orders/2", "/orders/1", fmt.Sprintf("/orders/%d/settle", i), "/orders"}[(i+caller)%4]
				method := map[bool]string{true: "GET", false: "POST"}[i%4 < 2 && !strings.HasSuffix(path, "settle") && path != "/orders"]
				e, _ := b.request(method, path)
				if i%3 == 0 {
					b.worker.do(func() {
						e.details, e.attempts = "via_upstream", 1
						e.respond("201", false)
						e.more(`{"id": 7}`, true)
					})
				}
				b.end(e)
			}
		})
	}
	wg.Wait()
	b.adapter.Close(10 * time.Second)
}

func TestCreate(t *testing.T) {
	b := newBench(t, Options{})
	e, do := b.request("POST", "/orders")
	if do != PassRequest || e.headers[Request].Get("accept-encoding") != "" {
		t.Errorf("%d, accept-encoding %q", do, e.headers[Request].Get("accept-encoding"))
	}
	b.worker.do(func() {
		e.details, e.attempts = "via_upstream", 1
		if s := e.respond("201", false); s != Read {
			t.Errorf("the answer's headers: %d", s)
		}
		if s := e.more(`{"id":`, false); s != Wait {
			t.Errorf("the first part: %d", s)
		}
		if s := e.more(` 42}`, true); s != Wait {
			t.Errorf("the last part: %d", s)
		}
	})
	b.until("it is learned", func() bool { return b.learned() == "42" })
	b.worker.do(func() {
		if e.response != 0 {
			t.Error("the answer was passed on before the order is known")
		}
	})
	close(b.filter.Learning)
	b.until("the answer goes on", func() bool { return e.response == 1 })
	b.end(e)
}

// TestAnswerThatStops is one that is larger than Envoy's buffer: no more comes of it until
// it is passed on.
func TestAnswerThatStops(t *testing.T) {
	b := newBench(t, Options{AnswerDelay: 50 * time.Millisecond})
	close(b.filter.Learning)
	e, _ := b.request("POST", "/orders")
	b.worker.do(func() {
		e.details, e.attempts = "via_upstream", 1
		e.respond("201", false)
		e.more(`{"padding": "xxxxxxxx`, false)
	})
	b.until("the filter is marked", func() bool { return b.learned() == "incomplete, abandoned" })
	b.until("the answer goes on", func() bool { return e.response == 1 })
	b.worker.do(func() {
		if e.stream != nil {
			t.Error("the rest is of interest")
		}
	})
	b.end(e)
}

// TestCreateEnds has the stream of a create end before its order is known.
func TestCreateEnds(t *testing.T) {
	const left = "downstream_remote_disconnect"
	for name, tc := range map[string]struct {
		does func(e *envoy)
		want string // what is learned, "": nothing
	}{
		"before the answer":           {func(e *envoy) { e.details, e.attempts = left, 1 }, "abandoned"},
		"before there was an attempt": {func(e *envoy) { e.details, e.attempts = left, 0 }, ""},
		"with an answer of Envoy's":   {func(e *envoy) { e.details, e.attempts = "response_timeout", 1; e.respond("504", false) }, "abandoned"},
		"with one that says no":       {func(e *envoy) { e.details, e.attempts = "via_upstream", 1; e.respond("422", false) }, ""},
		"after a conflict":            {func(e *envoy) { e.details, e.attempts = "via_upstream", 1; e.respond("409", true) }, "incomplete"},
		"before the body":             {func(e *envoy) { e.details, e.attempts = "via_upstream", 1; e.respond("201", false) }, "abandoned"},
		"in the body, before the ID": {func(e *envoy) {
			e.details, e.attempts = "via_upstream", 1
			e.respond("201", false)
			e.more(`{"i`, false)
		}, "abandoned"},
		"in the body, within the ID": {func(e *envoy) {
			e.details, e.attempts = "via_upstream", 1
			e.respond("201", false)
			e.more(`{"id":4`, false)
		}, "abandoned"},
		"in the body, behind the ID": {func(e *envoy) {
			e.details, e.attempts = "via_upstream", 1
			e.respond("201", false)
			e.more(`{"id":42,`, false)
		}, "42"},
		"while it is learned": {func(e *envoy) {
			e.details, e.attempts = "via_upstream", 1
			e.respond("201", false)
			e.more(`{"id":42}`, true)
		}, "42"},
		"in the body of a second try":  {func(e *envoy) { e.details, e.attempts = "via_upstream", 2; e.respond("201", false) }, "abandoned"},
		"in one that Envoy is mute on": {func(e *envoy) { e.mute = true; e.respond("201", false); e.more(`{"id":42,`, false) }, "42"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			close(b.filter.Learning)
			e, _ := b.request("POST", "/orders")
			b.worker.do(func() { tc.does(e) })
			b.end(e)
			b.adapter.Close(10 * time.Second)
			if got := b.learned(); got != tc.want {
				t.Errorf("learned %q, want %q", got, tc.want)
			}
		})
	}
}

// TestFaults are ours: Envoy lives, and the request fails as configured.
func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name, method, path string
		allow              bool
		answer             uint32 // 0: it is passed on
	}{
		{"in a lookup", "GET", "/orders/13", false, 0},
		{"in a lookup, allowed", "GET", "/orders/13", true, 0},
		{"where a lookup asks", "GET", "/orders/66", false, 0},
		{"where the lookup of a settlement asks", "GET", "/orders/66/confirm", false, 503},
		{"where the lookup of a settlement asks, allowed", "GET", "/orders/66/confirm", true, 503},
		{"in the lookup of a settlement", "GET", "/orders/13/confirm", false, 503},
		{"in the lookup of a settlement, allowed", "GET", "/orders/13/confirm", true, 503},
		{"in a settlement", "POST", "/orders/42/settle", false, 503},
		{"in a settlement, allowed", "POST", "/orders/42/settle", true, 503}, // never without its lock
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, Options{FailureModeAllow: tc.allow})
			b.filter.Fault, b.lock.Fault = "13", true
			e, do := b.request(tc.method, tc.path)
			if tc.answer == 0 {
				b.until("it passes", func() bool { return do == PassRequest || e.continued == 1 })
				if forged := e.headers[Request].Get(gate.HeaderFence); forged != "" {
					t.Errorf("the client's fence %s passes", forged)
				}
			} else {
				b.until("it is answered", func() bool { return e.answer == tc.answer && e.why == "ordergate_fault" })
			}
			b.end(e)
		})
	}
}

// TestFaultAtTheEnd has a fault occur at the end of a stream, of which Envoy's side goes then.
func TestFaultAtTheEnd(t *testing.T) {
	b := newBench(t, Options{})
	g := b.gate(http.StatusConflict)
	g.LogDecisionsTo(faultyLog{})
	b.adapter.Use(g)
	for _, path := range []string{"/orders/42/settle", "/orders/42/again"} {
		e, _ := b.request("POST", path)
		b.lock.Grants <- nil
		b.until("it goes on", func() bool { return e.continued == 1 })
		b.worker.do(func() { e.attempts = 1 })
		b.end(e)
	}
	b.until("the create leaves a doubt", func() bool { return b.learned() == "abandoned" })
}

// TestFaultInAnAnswer has a fault occur when the order of an answer is known: the answer goes on.
func TestFaultInAnAnswer(t *testing.T) {
	b := newBench(t, Options{})
	g := b.gate(http.StatusConflict)
	g.LogDecisionsTo(faultyLog{})
	b.adapter.Use(g)
	e, _ := b.request("POST", "/orders")
	b.worker.do(func() {
		e.attempts, e.details = 1, "via_upstream"
		e.respond("201", false)
		e.more(`{"id":7}`, true)
	})
	close(b.filter.Learning)
	b.until("the answer goes on", func() bool { return e.response == 1 })
	b.end(e)
}

// faultyLog is a decision log that causes a fault.
type faultyLog struct{ gatetest.Decisions }

func (faultyLog) Wants(int, gate.Action, gate.Verdict) bool { panic("a fault") }

// TestTasksAfterTheEnd has a task post another one: what it begins may end at once.
func TestTasksAfterTheEnd(t *testing.T) {
	var m mailbox
	m.close()
	ran := ""
	m.post(func() Step {
		m.post(func() Step { ran += "then"; return Step{} })
		ran += "first "
		return Step{}
	})
	if ran != "first then" {
		t.Errorf("ran %q", ran)
	}
}

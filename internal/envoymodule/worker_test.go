package envoymodule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go/shared"
	"github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go/shared/fake"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// These tests put what Envoy cannot be made to do on purpose: every order of events, and
// faults of ours, under the race detector, which finds no room in Envoy's process. That
// it works in Envoy is shown by the tests in tests/, with -attachment=module.

// worker is one of Envoy's worker threads: it runs what belongs to its streams, one thing
// after the other.
type worker struct {
	tasks chan func()
	done  chan struct{}
}

func newWorker(t *testing.T) *worker {
	w := &worker{tasks: make(chan func(), 1000), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for task := range w.tasks {
			task()
		}
	}()
	t.Cleanup(func() { close(w.tasks); <-w.done })
	return w
}

// do has the worker do something, and waits for it.
func (w *worker) do(task func()) {
	done := make(chan struct{})
	w.tasks <- func() { defer close(done); task() }
	<-done
}

// envoy is a stream as Envoy has it. All of it is the worker's.
type envoy struct {
	shared.HttpFilterHandle // what is not here is not called
	worker                  *worker
	headers                 *fake.FakeHeaderMap
	details                 string
	attempts                float64
	mute                    bool // it tells no number of attempts

	over      bool
	continued int    // times that the request was
	answer    uint32 // status of an answer that was given here
	why       string
	response  int // times that the answer was continued
}

func (e *envoy) RequestHeaders() shared.HeaderMap { return e.headers }
func (e *envoy) GetScheduler() shared.Scheduler   { return e }
func (e *envoy) ContinueRequest()                 { e.continued++ }
func (e *envoy) ContinueResponse()                { e.response++ }

func (e *envoy) SendLocalResponse(status uint32, _ [][2]string, _ []byte, why string) {
	e.answer, e.why = status, why
}

// Schedule drops what comes too late, as Envoy does.
func (e *envoy) Schedule(task func()) {
	e.worker.tasks <- func() {
		if !e.over {
			task()
		}
	}
}

func (e *envoy) GetAttributeString(shared.AttributeID) (shared.UnsafeEnvoyBuffer, bool) {
	m := fake.NewFakeHeaderMap(map[string][]string{"d": {e.details}})
	return m.GetOne("d"), e.details != ""
}

func (e *envoy) GetAttributeNumber(shared.AttributeID) (float64, bool) { return e.attempts, !e.mute }

// lock is a Locker, and the only lease of each Acquire.
type lock struct {
	grant chan error // an answer to each Acquire
	panic bool

	mu   sync.Mutex
	did  []string
	lost chan struct{}
}

func newLock() *lock { return &lock{grant: make(chan error, 1), lost: make(chan struct{})} }

func (l *lock) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.did = append(l.did, what)
}

func (l *lock) noted() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.did, " ")
}

func (l *lock) Key(id string) string { return "lock:" + id }

func (l *lock) Acquire(ctx context.Context, _ gate.Ask) (gate.Lease, error) {
	if l.panic {
		panic("a fault in the locker")
	}
	select {
	case err := <-l.grant:
		if err != nil {
			return nil, err
		}
		return l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lock) Fences() []int64                    { return []int64{7} }
func (l *lock) Owner() string                      { return "owner" }
func (l *lock) Lost() <-chan struct{}              { return l.lost }
func (l *lock) Release(context.Context) error      { l.note("release"); return nil }
func (l *lock) Hold(context.Context, string) error { l.note("hold"); return nil }

// known is a filter that waits before it says that an order is absent.
type known struct {
	panics  string // an ID
	learned chan string
	hold    chan struct{} // closed: learning ends
}

func (k *known) Glance(id string) (gate.Answer, bool) {
	if id == k.panics {
		panic("a fault in the filter")
	}
	return gate.Maybe, id == "1"
}

func (k *known) Later(id string, answer func(gate.Answer)) {
	go func() {
		if id == "3" {
			answer(gate.Unknown)
		} else {
			answer(gate.Absent)
		}
	}()
}

func (k *known) MayContain(context.Context, string) gate.Answer { return gate.Unknown }
func (k *known) Missed(context.Context, string) error           { k.learned <- "missed"; return nil }
func (k *known) Learn(ctx context.Context, id string) error {
	k.learned <- id
	select {
	case <-k.hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type silent struct{}

func (silent) Decided(int, gate.Action, gate.Verdict, time.Duration) {}
func (silent) Closed(int, gate.Outcome)                              {}
func (silent) Refused(int, order.Reason)                             {}
func (silent) Learned(int, error)                                    {}

// bench is a face with a worker.
type bench struct {
	t      *testing.T
	face   *Face
	worker *worker
	lock   *lock
	known  *known
}

func newBench(t *testing.T, opts Options) *bench {
	t.Helper()
	b := &bench{t: t, worker: newWorker(t), lock: newLock(), known: &known{learned: make(chan string, 10), hold: make(chan struct{})}}
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	path := []order.ID{{In: order.InPath, Name: "id", Format: format}}
	g, err := gate.New([]gate.Policy{
		{
			Rule:    order.Rule{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: path},
			Invalid: gate.Reply{Status: 400},
			Lookup:  &gate.Lookup{Filter: b.known, Absent: gate.Reply{Status: 404}},
		},
		{
			Rule:   order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: path},
			Settle: &gate.Settle{Lock: b.lock, Busy: gate.Reply{Status: 409}, Unavailable: gate.Reply{Status: 503}},
		},
		{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
			Create: &gate.Create{Filter: b.known, Learn: gate.Learn{JSON: []string{"id"}}, Format: format},
		},
	}, silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	b.face = NewFace(g, opts)
	t.Cleanup(func() { b.face.Close(10 * time.Second) })
	return b
}

// request begins one, without a body.
func (b *bench) request(method, path string) (*envoy, shared.HttpFilter, shared.HeadersStatus) {
	e := &envoy{worker: b.worker, headers: fake.NewFakeHeaderMap(map[string][]string{
		":method": {method}, ":path": {path}, ":authority": {"shop"}, "accept-encoding": {"gzip"}, gate.HeaderFence: {"99", "98"},
	})}
	var f shared.HttpFilter
	var status shared.HeadersStatus
	b.worker.do(func() {
		f = b.face.Create(e)
		status = f.OnRequestHeaders(e.headers, true)
	})
	return e, f, status
}

// end is the end of a stream.
func (b *bench) end(e *envoy, f shared.HttpFilter) {
	b.worker.do(func() {
		e.over = true
		f.OnStreamComplete()
		f.OnDestroy()
	})
}

// until waits until something is so, which the worker looks at.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		var is bool
		b.worker.do(func() { is = ok() })
		if is {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("never happened: %s", what)
		}
	}
}

func answerOf(status string) *fake.FakeHeaderMap {
	return fake.NewFakeHeaderMap(map[string][]string{":status": {status}})
}

func TestLookup(t *testing.T) {
	for _, tc := range []struct {
		path    string
		answer  uint32
		verdict string
	}{
		{"/orders/1", 0, "maybe"}, {"/orders/2", 404, ""}, {"/orders/3", 0, "unknown"}, {"/orders/x", 400, ""},
	} {
		t.Run(tc.path, func(t *testing.T) {
			b := newBench(t, Options{})
			e, f, status := b.request("GET", tc.path)
			if waits := status == shared.HeadersStatusStopAllAndWatermark; !waits && tc.answer != 0 {
				t.Error("it was not stopped")
			}
			b.until("it is decided", func() bool {
				return e.answer != 0 || e.continued > 0 || status == shared.HeadersStatusContinue
			})
			b.worker.do(func() {
				if e.answer != tc.answer || e.headers.GetOne(gate.HeaderVerdict).ToString() != tc.verdict {
					t.Errorf("answered %d, verdict %q", e.answer, e.headers.GetOne(gate.HeaderVerdict).ToString())
				}
				if e.answer == 0 && e.headers.GetOne(gate.HeaderFence).Len > 0 {
					t.Error("a forged fence is passed on")
				}
			})
			b.end(e, f)
		})
	}
}

// TestBracketRaces has the lock, the answer and the end come in every order.
func TestBracketRaces(t *testing.T) {
	known, unsent := "via_upstream", "stream_idle_timeout"
	for name, tc := range map[string]struct {
		does func(b *bench, e *envoy, f shared.HttpFilter)
		want string // what becomes of the lock
	}{
		"answered": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.lock.grant <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = known, 1; f.OnResponseHeaders(answerOf("200"), true) })
			b.end(e, f)
		}, "release"},
		"the client leaves meanwhile": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.lock.grant <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = "downstream_remote_disconnect", 1 })
			b.end(e, f)
		}, "hold"},
		"the client leaves before the backend is reached": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.lock.grant <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = "downstream_remote_disconnect", 0 })
			b.end(e, f)
		}, "release"},
		"the lock crosses the end": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.worker.do(func() { // nothing scheduled runs before the end
				b.lock.grant <- nil
				e.over = true
				f.OnStreamComplete()
			})
			b.until("nothing goes on", func() bool { return e.continued == 0 })
		}, ""},
		"the lock comes after the end": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.end(e, f)
			b.lock.grant <- nil
		}, ""},
		"Envoy answers while the lock is waited for": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.worker.do(func() { e.details = unsent; f.OnResponseHeaders(answerOf("408"), true) })
			b.lock.grant <- nil
			b.end(e, f)
		}, ""},
		"refused": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.lock.grant <- gate.ErrBusy
			b.until("it is answered", func() bool { return e.answer == 409 })
			b.end(e, f)
		}, ""},
		"unavailable": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.lock.grant <- errors.New("no Redis")
			b.until("it is answered", func() bool { return e.answer == 503 && e.why == "ordergate_unavailable" })
			b.end(e, f)
		}, ""},
		"the lease is lost": {func(b *bench, e *envoy, f shared.HttpFilter) {
			b.lock.grant <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			close(b.lock.lost)
			b.until("the worker knows", func() bool { return f.(*stream).bracket.lost.Load() })
			b.worker.do(func() {
				e.details, e.attempts = known, 1
				h := answerOf("200")
				f.OnResponseHeaders(h, true)
				if h.GetOne(headerLost).ToString() != "true" {
					t.Error("the client is not told")
				}
			})
			b.end(e, f)
		}, "release"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			e, f, status := b.request("POST", "/orders/42/settle")
			if status != shared.HeadersStatusStopAllAndWatermark {
				t.Fatalf("status %d: it does not wait", status)
			}
			tc.does(b, e, f)
			b.face.Close(10 * time.Second)
			did := b.lock.noted()
			// A lock that was granted too late is given back; one that was not needs nothing.
			if did != tc.want && (tc.want != "" || did != "release") {
				t.Errorf("the lock: %q, want %q", did, tc.want)
			}
			b.worker.do(func() {
				if tc.want == "" && e.continued > 0 {
					t.Error("the request was passed on")
				}
			})
		})
	}
}

// TestResponse is what Envoy tells, or does not.
func TestResponse(t *testing.T) {
	for _, tc := range []struct {
		details  string
		attempts float64
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
		s := &stream{envoy: &envoy{details: tc.details, attempts: tc.attempts, mute: tc.mute}}
		if got := s.response(answerOf("503")).Outcome(); got != tc.want {
			t.Errorf("%q after %g attempts (not told: %t): %s, want %s", tc.details, tc.attempts, tc.mute, got, tc.want)
		}
	}
}

// TestManyStreams has a lot of them at a time, each of which ends whenever it likes.
func TestManyStreams(t *testing.T) {
	b := newBench(t, Options{})
	close(b.known.hold)
	go func() {
		for range b.known.learned { // nobody looks
		}
	}()
	close(b.lock.grant) // all are granted
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			for i := range 200 {
				path := []string{"/orders/2", "/orders/1", fmt.Sprintf("/orders/%d/settle", i), "/orders"}[(i+caller)%4]
				method := map[bool]string{true: "GET", false: "POST"}[i%4 < 2 && !strings.HasSuffix(path, "settle") && path != "/orders"]
				e, f, _ := b.request(method, path)
				if i%3 == 0 {
					b.worker.do(func() {
						e.details, e.attempts = "via_upstream", 1
						f.OnResponseHeaders(answerOf("201"), false)
						f.OnResponseBody(fake.NewFakeBodyBuffer([]byte(`{"id": 7}`)), true)
					})
				}
				b.end(e, f)
			}
		})
	}
	wg.Wait()
	b.face.Close(10 * time.Second)
	close(b.known.learned)
}

func TestCreate(t *testing.T) {
	b := newBench(t, Options{})
	e, f, status := b.request("POST", "/orders")
	if status != shared.HeadersStatusContinue || e.headers.GetOne("accept-encoding").Len > 0 {
		t.Errorf("status %d, headers %v", status, e.headers.Headers)
	}
	b.worker.do(func() {
		e.details, e.attempts = "via_upstream", 1
		if s := f.OnResponseHeaders(answerOf("201"), false); s != shared.HeadersStatusStop {
			t.Errorf("the answer's headers: %d", s)
		}
		if s := f.OnResponseBody(fake.NewFakeBodyBuffer([]byte(`{"id":`)), false); s != shared.BodyStatusStopAndWatermark {
			t.Errorf("the first part: %d", s)
		}
		if s := f.OnResponseBody(fake.NewFakeBodyBuffer([]byte(` 42}`)), true); s != shared.BodyStatusStopAndWatermark {
			t.Errorf("the last part: %d", s)
		}
	})
	if id := <-b.known.learned; id != "42" {
		t.Errorf("learned %q", id)
	}
	b.worker.do(func() {
		if e.response != 0 {
			t.Error("the answer was passed on before the order is known")
		}
	})
	close(b.known.hold)
	b.until("the answer goes on", func() bool { return e.response == 1 })
	b.end(e, f)
}

// TestAnswerThatStops is one that is larger than Envoy's buffer: no more comes of it until
// it is passed on.
func TestAnswerThatStops(t *testing.T) {
	b := newBench(t, Options{LearnTimeout: 50 * time.Millisecond})
	close(b.known.hold)
	e, f, _ := b.request("POST", "/orders")
	b.worker.do(func() {
		e.details, e.attempts = "via_upstream", 1
		f.OnResponseHeaders(answerOf("201"), false)
		f.OnResponseBody(fake.NewFakeBodyBuffer([]byte(`{"padding": "xxxxxxxx`)), false)
	})
	if id := <-b.known.learned; id != "missed" {
		t.Errorf("learned %q", id)
	}
	b.until("the answer goes on", func() bool { return e.response == 1 })
	b.worker.do(func() {
		if s := f.OnResponseBody(fake.NewFakeBodyBuffer([]byte(`x"}`)), true); s != shared.BodyStatusContinue {
			t.Errorf("the rest: %d", s)
		}
	})
	b.end(e, f)
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
		{"in a settlement", "POST", "/orders/42/settle", false, 503},
		{"in a settlement, allowed", "POST", "/orders/42/settle", true, 503}, // never without its lock
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, Options{FailureModeAllow: tc.allow})
			b.known.panics, b.lock.panic = "13", true
			e, f, status := b.request(tc.method, tc.path)
			if tc.answer == 0 {
				if status != shared.HeadersStatusContinue {
					t.Errorf("status %d", status)
				}
			} else {
				b.until("it is answered", func() bool { return e.answer == tc.answer && e.why == "ordergate_fault" })
			}
			b.end(e, f)
		})
	}
}

package envoymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// envoy is a stream as Envoy has it, with what module.c does. All of it is the worker's,
// but for waking.
type envoy struct {
	worker   *worker
	headers  [2]Headers // of a message
	chunk    string     // of a body
	details  string
	attempts int
	mute     bool // it tells no number of attempts

	stream    *Stream // nil: it is done with
	over      bool
	continued int    // times that the request was
	answer    uint32 // status of an answer that was given here
	why       string
	response  int // times that the answer was continued

	witness bool // the answer is of interest

	wakers atomic.Int32 // that are not freed
}

func (e *envoy) Headers(of Message) Headers { return e.headers[of] }
func (e *envoy) Chunks(Message) []Text      { return []Text{TextOf(e.chunk)} }
func (e *envoy) Details() string            { return e.details }
func (e *envoy) Attempts() (int, bool)      { return e.attempts, !e.mute }

func (e *envoy) Waker() Waker {
	e.wakers.Add(1)
	return &waker{envoy: e}
}

func (e *envoy) Set(of Message, name, value string) {
	e.Remove(of, name)
	e.headers[of] = append(e.headers[of], Header{TextOf(name), TextOf(value)})
}

func (e *envoy) Remove(of Message, name string) {
	e.headers[of] = slices.DeleteFunc(e.headers[of], func(h Header) bool { return h.Name.string() == name })
}

// on tells the stream of an event, and does what it says.
func (e *envoy) on(event Event, end bool) Action {
	if e.stream == nil {
		return Nothing
	}
	step := e.stream.On(event, end)
	return e.act(step, event == Woken)
}

func (e *envoy) act(step Step, woken bool) Action {
	e.witness = step.Witness
	if e.stream != nil && e.stream.Done() {
		e.stream.On(Complete, true)
		e.stream = nil
	}
	switch {
	case step.Do == Refuse:
		e.answer, e.why = step.Reply.Status, step.Reply.Details
	case step.Do == PassRequest && step.Verdict != gate.VerdictNone:
		e.Set(Request, gate.HeaderVerdict, step.Verdict.String())
	}
	if woken && step.Do == PassRequest {
		e.continued++
	}
	if woken && step.Do == PassResponse {
		e.response++
	}
	return step.Do
}

// respond is the headers of an answer.
func (e *envoy) respond(status string, end bool) Action {
	e.headers[Response] = headersOf(":status", status)
	return e.on(ResponseHeaders, end)
}

func (e *envoy) more(chunk string, end bool) Action {
	e.chunk = chunk
	return e.on(ResponseBody, end)
}

func headersOf(pairs ...string) (h Headers) {
	for i := 0; i < len(pairs); i += 2 {
		h = append(h, Header{TextOf(pairs[i]), TextOf(pairs[i+1])})
	}
	return h
}

// waker is used as it may be: not after it is freed.
type waker struct {
	envoy *envoy
	freed atomic.Bool
}

func (w *waker) Wake() {
	if w.freed.Load() {
		panic("a wake after the end of the stream")
	}
	e := w.envoy
	e.worker.tasks <- func() {
		if !e.over { // what comes too late Envoy drops
			e.on(Woken, false)
		}
	}
}

func (w *waker) Free() {
	if w.freed.Swap(true) {
		panic("freed twice")
	}
	w.envoy.wakers.Add(-1)
}

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

	missing []string // that the backend did not have; the worker's
}

func newBench(t *testing.T, opts Options) *bench {
	t.Helper()
	b := &bench{t: t, worker: newWorker(t), lock: newLock(), known: &known{learned: make(chan string, 10), hold: make(chan struct{})}}
	b.face = NewFace(b.gate(http.StatusConflict), opts)
	t.Cleanup(func() { b.face.Close(10 * time.Second) })
	return b
}

// gate makes one that answers a busy order with this status.
func (b *bench) gate(busy int) *gate.Gate {
	b.t.Helper()
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	path := []order.ID{{In: order.InPath, Name: "id", Format: format}}
	settle := &gate.Settle{Lock: b.lock, Busy: gate.Reply{Status: busy}, Unavailable: gate.Reply{Status: 503}}
	g, err := gate.New([]gate.Policy{
		{
			Rule:    order.Rule{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: path},
			Invalid: gate.Reply{Status: 400},
			Lookup:  &gate.Lookup{Filter: b.known, Absent: gate.Reply{Status: 404}, Missing: func(id string) { b.missing = append(b.missing, id) }},
		},
		{
			Rule:   order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: path},
			Settle: settle,
		},
		{
			Rule: order.Rule{Name: "settle-json", Methods: []string{"POST"}, Path: "/settle", IDs: []order.ID{
				{In: order.InJSON, Name: "orderId", Members: []string{"orderId"}, Format: format, MaxBody: 1 << 10},
			}},
			Invalid: gate.Reply{Status: 400},
			Settle:  settle,
		},
		{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
			Create: &gate.Create{Filter: b.known, Learn: gate.Learn{JSON: []string{"id"}}, Format: format},
		},
	}, silent{}, time.Now)
	if err != nil {
		b.t.Fatal(err)
	}
	return g
}

// request begins one, without a body.
func (b *bench) request(method, path string) (*envoy, Action) {
	return b.begin(method, path, true)
}

func (b *bench) begin(method, path string, end bool) (*envoy, Action) {
	e := &envoy{worker: b.worker}
	e.headers[Request] = headersOf(":method", method, ":path", path, ":authority", "shop", "accept-encoding", "gzip",
		"content-type", "application/json", gate.HeaderFence, "99", gate.HeaderFence, "98")
	var do Action
	b.worker.do(func() {
		var step Step
		step, e.stream = b.face.Request(e, e.headers[Request], end)
		do = e.act(step, false)
	})
	return e, do
}

// end is the end of a stream.
func (b *bench) end(e *envoy) {
	b.worker.do(func() {
		e.over = true
		e.on(Complete, true)
	})
	if n := e.wakers.Load(); n != 0 {
		b.t.Errorf("%d wakers are left", n)
	}
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
			e, do := b.request("GET", tc.path)
			if do == PassRequest && tc.answer != 0 {
				t.Error("it was not stopped")
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

// TestOneCall has nothing left to do for a request that needs a verdict only.
func TestOneCall(t *testing.T) {
	b := newBench(t, Options{})
	for path, want := range map[string]Action{"/orders/1": PassRequest, "/orders/x": Refuse, "/others": PassRequest} {
		e, do := b.request("GET", path)
		if do != want || e.stream != nil {
			t.Errorf("%s: %d, want %d; a stream: %t", path, do, want, e.stream != nil)
		}
		b.end(e)
	}
}

// TestMissing is what the backend says of an order that may exist.
func TestMissing(t *testing.T) {
	for details, want := range map[string]int{"via_upstream": 1, "no_healthy_upstream": 0} {
		b := newBench(t, Options{})
		e, _ := b.request("GET", "/orders/1")
		if !e.witness {
			t.Fatal("the answer is of no interest")
		}
		b.worker.do(func() {
			e.details, e.attempts = details, 1
			e.headers[Response] = headersOf(":status", "404")
			b.face.Missing(e)
			if len(b.missing) != want {
				t.Errorf("%s: missing are %v", details, b.missing)
			}
		})
		b.end(e)
	}
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
				b.lock.grant <- nil
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
	b.face.Use(b.gate(http.StatusLocked))
	second, _ := b.request("POST", "/orders/43/settle")
	b.lock.grant <- gate.ErrBusy
	b.lock.grant <- gate.ErrBusy
	b.until("the first is answered", func() bool { return first.answer == http.StatusConflict })
	b.until("the second is answered", func() bool { return second.answer == http.StatusLocked })
	b.end(first)
	b.end(second)
}

// TestBracketRaces has the lock, the answer and the end come in every order.
func TestBracketRaces(t *testing.T) {
	known, unsent := "via_upstream", "stream_idle_timeout"
	for name, tc := range map[string]struct {
		does func(b *bench, e *envoy)
		want string // what becomes of the lock
	}{
		"answered": {func(b *bench, e *envoy) {
			b.lock.grant <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = known, 1; e.respond("200", true) })
			b.end(e)
		}, "release"},
		"the client leaves meanwhile": {func(b *bench, e *envoy) {
			b.lock.grant <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = "downstream_remote_disconnect", 1 })
			b.end(e)
		}, "hold"},
		"the client leaves before the backend is reached": {func(b *bench, e *envoy) {
			b.lock.grant <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			b.worker.do(func() { e.details, e.attempts = "downstream_remote_disconnect", 0 })
			b.end(e)
		}, "release"},
		"the lock crosses the end": {func(b *bench, e *envoy) {
			b.worker.do(func() { // nothing scheduled runs before the end
				b.lock.grant <- nil
				e.over = true
				e.on(Complete, true)
			})
			b.until("nothing goes on", func() bool { return e.continued == 0 })
		}, ""},
		"the lock comes after the end": {func(b *bench, e *envoy) {
			b.end(e)
			b.lock.grant <- nil
		}, ""},
		"Envoy answers while the lock is waited for": {func(b *bench, e *envoy) {
			b.worker.do(func() { e.details = unsent; e.respond("408", true) })
			b.lock.grant <- nil
			b.end(e)
		}, ""},
		"refused": {func(b *bench, e *envoy) {
			b.lock.grant <- gate.ErrBusy
			b.until("it is answered", func() bool { return e.answer == 409 })
			b.end(e)
		}, ""},
		"unavailable": {func(b *bench, e *envoy) {
			b.lock.grant <- errors.New("no Redis")
			b.until("it is answered", func() bool { return e.answer == 503 && e.why == "ordergate_unavailable" })
			b.end(e)
		}, ""},
		"the lease is lost": {func(b *bench, e *envoy) {
			b.lock.grant <- nil
			b.until("it goes on", func() bool { return e.continued == 1 })
			close(b.lock.lost)
			b.until("the worker knows", func() bool { return e.stream.bracket.lost.Load() })
			b.worker.do(func() {
				e.details, e.attempts = known, 1
				e.respond("200", true)
				if e.headers[Response].Get(headerLost) != "true" {
					t.Error("the client is not told")
				}
			})
			b.end(e)
		}, "release"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			e, do := b.request("POST", "/orders/42/settle")
			if do != Wait {
				t.Fatalf("it does not wait: %d", do)
			}
			tc.does(b, e)
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
		if got := response(e, headersOf(":status", "503")).Outcome(); got != tc.want {
			t.Errorf("%q after %d attempts (not told: %t): %s, want %s", tc.details, tc.attempts, tc.mute, got, tc.want)
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
	b.face.Close(10 * time.Second)
	close(b.known.learned)
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
	b.end(e)
}

// TestAnswerThatStops is one that is larger than Envoy's buffer: no more comes of it until
// it is passed on.
func TestAnswerThatStops(t *testing.T) {
	b := newBench(t, Options{LearnTimeout: 50 * time.Millisecond})
	close(b.known.hold)
	e, _ := b.request("POST", "/orders")
	b.worker.do(func() {
		e.details, e.attempts = "via_upstream", 1
		e.respond("201", false)
		e.more(`{"padding": "xxxxxxxx`, false)
	})
	if id := <-b.known.learned; id != "missed" {
		t.Errorf("learned %q", id)
	}
	b.until("the answer goes on", func() bool { return e.response == 1 })
	b.worker.do(func() {
		if e.stream != nil {
			t.Error("the rest is of interest")
		}
	})
	b.end(e)
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
			e, do := b.request(tc.method, tc.path)
			if tc.answer == 0 {
				if do != PassRequest {
					t.Errorf("it does not pass: %d", do)
				}
			} else {
				b.until("it is answered", func() bool { return e.answer == tc.answer && e.why == "ordergate_fault" })
			}
			b.end(e)
		})
	}
}

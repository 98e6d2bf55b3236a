package envoymodule

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

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

	watchNotFound bool // the answer is of interest

	wakers atomic.Int32 // that are not freed
}

func (e *envoy) Headers(of Message) Headers { return e.headers[of] }
func (e *envoy) Chunks(Message) []Text      { return []Text{textOf(e.chunk)} }
func (e *envoy) Details() string            { return e.details }
func (e *envoy) Attempts() (int, bool)      { return e.attempts, !e.mute }
func (e *envoy) Client() string             { return "192.0.2.1:4711" }

func (e *envoy) Waker() Waker {
	e.wakers.Add(1)
	return &waker{envoy: e}
}

func (e *envoy) Set(of Message, name, value string) {
	e.Remove(of, name)
	e.headers[of] = append(e.headers[of], Header{textOf(name), textOf(value)})
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
	e.watchNotFound = step.WatchNotFound
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
		h = append(h, Header{textOf(pairs[i]), textOf(pairs[i+1])})
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

	mu    sync.Mutex
	did   []string
	lost  chan struct{}
	ended chan struct{} // closed at the end of the test
}

func newLock() *lock {
	return &lock{grant: make(chan error, 1), lost: make(chan struct{}), ended: make(chan struct{})}
}

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

func (l *lock) Acquire(ctx context.Context, _ gate.LockRequest) (gate.Lease, error) {
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

// asyncLock is a lock whose callers need no goroutine.
type asyncLock struct{ *lock }

func (l asyncLock) AcquireAsync(ctx context.Context, request gate.LockRequest, then func(gate.Lease, error)) bool {
	go func() {
		if _, err := l.Acquire(ctx, request); err != nil {
			then(nil, err)
		} else {
			then(l, nil)
		}
	}()
	return true
}

func (l asyncLock) ReleaseAsync() { _ = l.Release(context.Background()) }

func (l asyncLock) NotifyLost(lost func()) {
	go func() {
		select {
		case <-l.lost:
			lost()
		case <-l.ended:
		}
	}()
}

func (l *lock) Fences() []int64                    { return []int64{7} }
func (l *lock) Owner() string                      { return "owner" }
func (l *lock) Lost() <-chan struct{}              { return l.lost }
func (l *lock) Release(context.Context) error      { l.note("release"); return nil }
func (l *lock) Hold(context.Context, string) error { l.note("hold"); return nil }

// fakeFilter is a filter of which memory has little: that order 1 exists, and that 5 does not. It
// cannot tell of 4, nor elsewhere of 3; what it has to be asked for beside those is absent.
type fakeFilter struct {
	panics  string // an ID
	asked   atomic.Int32
	learned chan string
	hold    chan struct{} // closed: learning ends
}

func (k *fakeFilter) MayContain(id string) gate.Answer {
	switch id {
	case k.panics:
		panic("a fault in the filter")
	case "1":
		return gate.Maybe
	case "4":
		return gate.Unknown
	case "5":
		return gate.Absent
	}
	return gate.NotInMemory
}

// Ask has a fault of its own, and is slow where that is asked for.
func (k *fakeFilter) Query(ctx context.Context, id string) gate.Answer {
	k.asked.Add(1)
	switch id {
	case "3":
		return gate.Unknown
	case "66":
		panic("a fault where the filter asks")
	case "77":
		<-ctx.Done()
		return gate.Unknown
	}
	return gate.Absent
}

func (k *fakeFilter) MarkIncomplete(context.Context, string, time.Time) error {
	k.learned <- "missed"
	return nil
}
func (k *fakeFilter) Abandoned(context.Context, string, time.Time) error {
	k.learned <- "abandoned"
	return nil
}
func (k *fakeFilter) Learn(ctx context.Context, id string) error {
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
	t       *testing.T
	adapter *Adapter
	worker  *worker
	lock    *lock
	async   bool // its callers need no goroutine
	filter  *fakeFilter

	notFound []string // that the backend did not have; the worker's
}

func newBench(t *testing.T, opts Options) *bench {
	t.Helper()
	b := &bench{t: t, worker: newWorker(t), lock: newLock(), filter: &fakeFilter{learned: make(chan string, 10), hold: make(chan struct{})}}
	b.adapter = NewAdapter(b.gate(http.StatusConflict), opts)
	t.Cleanup(func() { b.adapter.Close(10 * time.Second); close(b.lock.ended) })
	return b
}

// newAsyncBench is a bench whose lock's callers need no goroutine.
func newAsyncBench(t *testing.T) *bench {
	b := newBench(t, Options{})
	b.async = true
	b.adapter.Use(b.gate(http.StatusConflict))
	return b
}

// gate makes one that answers a busy order with this status.
func (b *bench) gate(busy int) *gate.Gate {
	b.t.Helper()
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	path := []order.ID{{In: order.InPath, Name: "id", Format: format}}
	settle := &gate.Settle{Lock: b.locker(), Busy: gate.Reply{Status: busy}, Unavailable: gate.Reply{Status: 503}}
	g, err := gate.New([]gate.Policy{
		{
			Rule:    order.Rule{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: path},
			Invalid: gate.Reply{Status: 400},
			Lookup:  &gate.Lookup{Filter: b.filter, Absent: gate.Reply{Status: 404}, OnNotFound: func(id string) { b.notFound = append(b.notFound, id) }},
		},
		{
			Rule:   order.Rule{Name: "both", Methods: []string{"GET"}, Path: "/orders/{id}/confirm", IDs: path},
			Lookup: &gate.Lookup{Filter: b.filter, Absent: gate.Reply{Status: 404}},
			Settle: settle,
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
			Create: &gate.Create{Filter: b.filter, Learn: gate.Learn{JSON: []string{"id"}}, Format: format},
		},
	}, silent{}, time.Now)
	if err != nil {
		b.t.Fatal(err)
	}
	return g
}

func (b *bench) locker() gate.Locker {
	if b.async {
		return asyncLock{b.lock}
	}
	return b.lock
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
		step, e.stream = b.adapter.Request(e, e.headers[Request], end)
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

func textOf(s string) Text { return Text{unsafe.StringData(s), uintptr(len(s))} }

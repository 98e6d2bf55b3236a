package envoymodule

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
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
	headers  [3]Headers // of a message
	chunk    string     // of a body
	details  string
	attempts int
	mute     bool // it has no number of attempts

	stream    *Stream // nil: it is done with
	over      bool
	continued int    // times that the request was
	answer    uint32 // status of an answer that was given here
	why       string
	reply     *Reply // of that answer
	response  int    // times that the answer was continued

	metadata      []gate.Metadata
	watchNotFound uint32 // the answer is of interest if it is not 0

	wakers atomic.Int32 // that are not freed
}

func (e *envoy) Headers(of Message) Headers { return e.headers[of] }
func (e *envoy) Chunks(Message) []Text      { return []Text{textOf(e.chunk)} }
func (e *envoy) Details() string            { return e.details }
func (e *envoy) Attempts() (int, bool)      { return e.attempts, !e.mute }
func (e *envoy) Describe(m *gate.Metadata)  { e.metadata = append(e.metadata, *m) }
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

// on reports an event to the stream, and carries out the step.
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
		e.answer, e.why, e.reply = uint32(step.Reply.Status), step.Reply.Details, step.Reply
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

// newFilter returns a filter of which memory has little: order 1 exists, 5 does not, and 4 is
// unknown. A query about 3 has no answer, one about 66 panics, and one about 77 waits. All other
// orders are absent.
func newFilter() *gatetest.Filter {
	return &gatetest.Filter{
		Journal: &gatetest.Journal{}, Learning: make(chan struct{}),
		Answers: map[string]presence.Answer{"1": presence.Maybe, "4": presence.Unknown, "5": presence.Absent}, Others: presence.NotInMemory,
		OnQuery: func(ctx context.Context, id string) presence.Answer {
			switch id {
			case "3":
				return presence.Unknown
			case "66":
				panic("a fault in a query of the filter")
			case "77":
				<-ctx.Done()
				return presence.Unknown
			}
			return presence.Absent
		},
	}
}

// bench is an adapter with a worker.
type bench struct {
	t       *testing.T
	adapter *Adapter
	worker  *worker
	lock    *gatetest.Lock
	filter  *gatetest.Filter

	notFound []string // that the backend did not have; the worker's
}

func newBench(t *testing.T, opts Options) *bench {
	t.Helper()
	opts.AnswerDelay = cmp.Or(opts.AnswerDelay, 3*time.Second)
	b := &bench{
		t: t, worker: newWorker(t), filter: newFilter(),
		lock: &gatetest.Lock{Journal: &gatetest.Journal{}, Grants: make(chan error, 1)},
	}
	b.adapter = NewAdapter(b.gate(http.StatusConflict), opts)
	t.Cleanup(func() {
		b.adapter.Close(10 * time.Second)
		bedtest.Eventually(t, "each lease is released or held", func() bool { return b.lock.Open() == 0 })
	})
	return b
}

// gate makes one that answers a busy order with this status.
func (b *bench) gate(busy int) *gate.Gate {
	b.t.Helper()
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	path := []order.ID{{In: order.InPath, Name: "id", Format: format}}
	settle := &gate.Settle{Lock: b.lock, Busy: gate.Reply{Status: busy}, Unavailable: gate.Reply{Status: 503}}
	g := gatetest.Gate(b.t, []gate.Policy{
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
		{
			Rule:   order.Rule{Name: "create-again", Methods: []string{"POST"}, Path: "/orders/{id}/again", IDs: path},
			Create: &gate.Create{Filter: b.filter, Learn: gate.Learn{JSON: []string{"id"}}, Format: format},
			Settle: settle,
		},
	}, gatetest.Silent{})
	g.LogDecisionsTo(gatetest.Decisions(true))
	g.TraceTo(gatetest.Tracer{})
	return g
}

// request begins one, without a body.
func (b *bench) request(method, path string) (*envoy, Action) {
	return b.begin(method, path, true)
}

func (b *bench) begin(method, path string, end bool) (*envoy, Action) {
	return b.beginAs("application/json", method, path, end)
}

// beginAs is begin with a content type.
func (b *bench) beginAs(contentType, method, path string, end bool) (*envoy, Action) {
	e := &envoy{worker: b.worker}
	e.headers[Request] = headersOf(":method", method, ":path", path, ":authority", "shop", "accept-encoding", "gzip",
		"content-type", contentType, gate.HeaderFence, "99", gate.HeaderFence, "98")
	return e, b.start(e, end)
}

// start has the adapter handle the request's headers.
func (b *bench) start(e *envoy, end bool) (do Action) {
	b.worker.do(func() {
		var step Step
		step, e.stream = b.adapter.Request(e, e.headers[Request], end)
		do = e.act(step, false)
	})
	return do
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

// queries returns the number of queries for orders that memory does not hold.
func (b *bench) queries() int { return len(b.filter.Journal.After("query ")) }

// learned returns the ID of each order that the filter has learned, and its marks.
func (b *bench) learned() string { return strings.ReplaceAll(b.filter.Journal.Short(), "learn ", "") }

// until waits until something is so, which the worker looks at.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	if !b.within(20*time.Second, ok) {
		b.t.Fatalf("never happened: %s", what)
	}
}

// within reports whether something becomes so in time, which the worker looks at.
func (b *bench) within(limit time.Duration, ok func() bool) (is bool) {
	for deadline := time.Now().Add(limit); !is && time.Now().Before(deadline); {
		b.worker.do(func() { is = ok() })
	}
	return is
}

func textOf(s string) Text { return Text{unsafe.StringData(s), uintptr(len(s))} }

package envoymodule

import (
	"encoding/json"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
)

// marked begins a marked request.
func (b *bench) marked(mark, method, path string, end bool) (*envoy, Action) {
	e := &envoy{worker: b.worker, attempts: 1, details: "via_upstream"}
	e.headers[Request] = headersOf(":method", method, ":path", path, ":authority", "shop", "content-type", "application/json",
		gate.HeaderDoctor, mark, gate.HeaderFence, "99")
	return e, b.start(e, end)
}

// report is the one that was given as an answer, nil if there is none.
func (e *envoy) report() *gate.Report {
	var r gate.Report
	if e.reply == nil || json.Unmarshal([]byte(e.reply.Body), &r) != nil || r.Nonce == "" {
		return nil
	}
	return &r
}

// TestProve answers marked requests at each stage, without a lock, and once.
func TestProve(t *testing.T) {
	seal := gate.NewSeal()
	b := newBench(t, Options{Marks: gate.NewMarks(seal, nil)})
	sign := func(stage gate.Stage) string { return seal.Sign(gate.NewMark(stage, "", 0)) }
	on := func(e *envoy, event Event, chunk string, end bool) (do Action) {
		b.worker.do(func() { e.chunk = chunk; do = e.on(event, end) })
		return do
	}

	e, do := b.marked(sign(gate.StageAuthz), "POST", "/orders/1/settle", false)
	if r := e.report(); do != Refuse || r == nil || r.Rule != "settle" || r.Adapter != gate.AdapterModule {
		t.Errorf("authz: %d %+v", do, r)
	}
	b.end(e)

	e, do = b.marked(sign(gate.StageProc), "POST", "/settle", false)
	if do != Read || on(e, RequestBody, `{"orderId":`, false) != Read || on(e, RequestBody, `7}`, true) != Refuse {
		t.Errorf("proc: %d", do)
	}
	if r := e.report(); r == nil || r.Rule != "settle-json" || !r.Named || r.Body == nil || *r.Body != 13 {
		t.Errorf("proc: %+v", r)
	}
	b.end(e)

	e, do = b.marked(sign(gate.StageBackend), "POST", "/orders/1/settle", true)
	if h := e.headers[Request]; do != PassRequest || h.Get(":path") != gate.MarkedPath || h.Get(gate.HeaderDoctor) != "" || h.Get(gate.HeaderFence) != "" {
		t.Errorf("to the backend: %d %v", do, h)
	}
	b.worker.do(func() { do = e.respond("404", false) })
	if do != Read || on(e, ResponseBody, "no such page", false) != Refuse {
		t.Errorf("to the backend: %d", do)
	}
	if r := e.report(); r == nil || r.Answer == nil || !r.Answer.Ended || r.Answer.Attempts != 1 || r.Answer.Status != 404 {
		t.Errorf("to the backend: %+v", r)
	}
	b.end(e)

	e, _ = b.marked(sign(gate.StageProc), "POST", "/settle", false)
	b.worker.do(func() { do = e.respond("413", true) }) // Envoy's own
	if do != PassResponse || e.report() != nil {
		t.Errorf("Envoy's answer: %d", do)
	}
	b.end(e)

	if lines := b.lock.Journal.Short(); lines != "" {
		t.Errorf("the lock: %s", lines)
	}
	mark := sign(gate.StageProc)
	e, _ = b.marked(mark, "GET", "/orders/1", true)
	b.end(e)
	e, do = b.marked(mark, "GET", "/orders/1", true)
	if do != Refuse || e.reply.Body != gate.RefusedMark(gate.MarkRepeated).Body || e.reply.Status != 400 {
		t.Errorf("a used mark: %d %+v", do, e.reply)
	}
	b.end(e)
}

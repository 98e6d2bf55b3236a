package tests

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// payer is an order service that counts its effects: each call pays once more, whatever was
// paid before. The query says how it answers.
type payer struct {
	*httptest.Server
	release chan struct{} // closed: calls that hang go on

	mu       sync.Mutex
	effects  map[string]int    // by path
	headers  map[string]string // x-ordergate-* of the last call, by name
	received []http.Header     // of each call
}

func newPayer(t testing.TB) *payer {
	p := &payer{release: make(chan struct{}), effects: make(map[string]int), headers: make(map[string]string)}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.Config.Protocols = new(http.Protocols)
	p.Config.Protocols.SetHTTP1(true)
	p.Config.Protocols.SetUnencryptedHTTP2(true)
	p.Start()
	t.Cleanup(func() {
		select {
		case <-p.release:
		default:
			close(p.release)
		}
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func (p *payer) addr() string { return strings.TrimPrefix(p.URL, "http://") }

func (p *payer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.effects[r.URL.Path]++
	n := p.effects[r.URL.Path]
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Ordergate-") {
			p.headers[strings.ToLower(name)] = r.Header.Get(name)
		}
	}
	p.received = append(p.received, r.Header.Clone())
	p.mu.Unlock()
	query := r.URL.Query()
	if query.Has("hang") {
		select {
		case <-p.release:
		case <-r.Context().Done():
			return
		}
	}
	if pause, err := time.ParseDuration(query.Get("for")); err == nil {
		<-time.After(pause)
	}
	for _, header := range query["header"] {
		name, value, _ := strings.Cut(header, ":")
		w.Header().Add(name, value)
	}
	for _, text := range query["hint"] { // an interim answer
		status, _ := strconv.Atoi(text)
		w.WriteHeader(status)
	}
	status := http.StatusOK
	if text := query.Get("status"); text != "" {
		status, _ = strconv.Atoi(text)
	}
	answer := []byte(fmt.Sprintf(`{"orderId":%d,"payment":%d,"for":%q}`, 1000+n, n, body))
	if size, err := strconv.Atoi(query.Get("size")); err == nil {
		answer = bytes.Repeat([]byte("x"), size)
	}
	if query.Has("gzip") {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(answer)
		_ = z.Close()
		answer = packed.Bytes()
		w.Header().Set("Content-Encoding", "gzip")
	}
	if query.Has("trailer") {
		w.Header().Set("Trailer", "X-Sum")
		defer w.Header().Set("X-Sum", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	if query.Has("untyped") {
		w.Header()["Content-Type"] = nil
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_, _ = w.Write(answer)
	}
	for query.Has("endless") && r.Context().Err() == nil {
		_, _ = w.Write(answer)
	}
	if query.Has("break") {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// paid returns how often a path had an effect.
func (p *payer) paid(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.effects[path]
}

// wantPaid fails the test unless a path had so many effects.
func (p *payer) wantPaid(t testing.TB, path string, n int) {
	t.Helper()
	if got := p.paid(path); got != n {
		t.Errorf("%s: paid %d times, want %d", path, got, n)
	}
}

// onceRules are rules with stored answers.
func onceRules(yaml string) string {
	yaml = bedtest.Replace(yaml, "    settle: {lock: settlement}\n", "    settle: {lock: settlement, once: {keep: 1h, name: commission}}\n")
	return shortLease(yaml) + `
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true}
    settle: {lock: settlement, once: {keep: 1h, name: commission}}
    once: {by: idempotency-key}
  - name: batch-undo
    match: {methods: [POST], path: /batch/undo}
    id: {json: ids, list: true}
    settle: {lock: settlement, once: {forget: true}}
  - name: undo
    match: {methods: [POST], path: "/orders/{id}/undo"}
    id: {path: id}
    settle: {lock: settlement}
    once: {forget: true, statuses: [2xx, 303]}
  - name: payment
    match: {methods: [POST], path: "/payments"}
    once: {by: idempotency-key, required: true, scope: [{header: x-tenant}, authorization]}
  - name: note
    match: {methods: [POST], path: "/notes"}
    once: {by: [{header: x-user}, body], for: 1s, wait: {up_to: 5s}}
  - name: both
    match: {methods: [POST], path: "/orders/{id}/both"}
    id: {path: id}
    settle: {lock: settlement, once: {keep: 1h, headers: [x-multi]}}
    once: {by: idempotency-key}
  - name: refund
    match: {methods: [POST], path: "/orders/{id}/refund"}
    id: {path: id}
    settle: {lock: settlement, once: {forget: true}}
    once: {by: idempotency-key}
`
}

// newOnceStack is a stack with stored answers.
func newOnceStack(t testing.TB) (*stack, *payer) {
	p := newPayer(t)
	return newStack(t, settings{backend: p.addr(), orders: 200, gate: onceRules}), p
}

package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// backend is an order service that does what the query tells it to: the only
// way to have a connection reset at a given byte. (What old services do by
// themselves is tested with examples/legacy.)
type backend struct {
	*httptest.Server
	release chan struct{} // closed: everything that hangs goes on

	mu       sync.Mutex
	requests []*http.Request
	bodies   map[*http.Request]string
	tries    map[string]int
	resets   []string // paths of requests that hung when Envoy dropped them
}

func newBackend(t testing.TB) *backend {
	b := &backend{release: make(chan struct{}), tries: make(map[string]int), bodies: make(map[*http.Request]string)}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(func() {
		b.goOn()
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

func (b *backend) addr() string { return strings.TrimPrefix(b.URL, "http://") }

// goOn lets what hangs go on. It may be called more than once.
func (b *backend) goOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.release:
	default:
		close(b.release)
	}
}

// seen returns the requests that arrived.
func (b *backend) seen() []*http.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*http.Request(nil), b.requests...)
}

// body returns what came with a request.
func (b *backend) body(r *http.Request) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bodies[r]
}

// dropped reports whether Envoy has dropped a request for a path that hung.
func (b *backend) dropped(path string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.resets, path)
}

// arrived counts the requests for a path.
func (b *backend) arrived(path string) int {
	n := 0
	for _, r := range b.seen() {
		if r.URL.Path == path {
			n++
		}
	}
	return n
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	b.mu.Lock()
	b.requests = append(b.requests, r)
	b.bodies[r] = string(body)
	b.tries[r.RequestURI]++
	try := b.tries[r.RequestURI]
	b.mu.Unlock()

	query := r.URL.Query()
	if query.Get("first") == "hangs" && try == 1 {
		<-b.release
	}
	switch do := query.Get("do"); do {
	case "answer": // with what else the query has
		for _, at := range query["location"] {
			w.Header().Add("Location", at)
		}
		for _, id := range query["named"] {
			w.Header().Add("X-New-Order", id)
		}
		status, _ := strconv.Atoi(query.Get("status"))
		w.WriteHeader(status)
		fmt.Fprint(w, query.Get("body"))
	case "hang":
		select {
		case <-b.release:
		case <-r.Context().Done():
			b.mu.Lock()
			b.resets = append(b.resets, r.URL.Path)
			b.mu.Unlock()
		}
	case "hang-once": // the first try hangs, the second answers
		if try == 1 {
			<-b.release
		}
	case "500", "502", "503", "504":
		status, _ := strconv.Atoi(do)
		w.WriteHeader(status)
	case "204":
		w.WriteHeader(http.StatusNoContent)
	case "later": // the body comes behind the headers, as that of a service which does not buffer
		status, _ := strconv.Atoi(query.Get("status"))
		w.Header().Set("Content-Length", strconv.Itoa(len(query.Get("body"))))
		w.WriteHeader(status)
		w.(http.Flusher).Flush()
		<-time.After(10 * time.Millisecond)
		fmt.Fprint(w, query.Get("body"))
	case "stream": // the first part at once, the rest when told to
		for _, id := range query["named"] {
			w.Header().Add("X-New-Order", id)
		}
		if status, err := strconv.Atoi(query.Get("status")); err == nil {
			w.WriteHeader(status)
		}
		fmt.Fprintln(w, "part 1")
		w.(http.Flusher).Flush()
		<-b.release
		fmt.Fprintln(w, "part 2")
	case "create-slowly": // prints while it works
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"status":"new",`)
		w.(http.Flusher).Flush()
		<-b.release
		fmt.Fprintf(w, `"orderId":%s}`, query.Get("id"))
	case "stream-trailers":
		w.Header().Set("Trailer", "X-Checksum")
		fmt.Fprintln(w, "part 1")
		w.(http.Flusher).Flush()
		<-b.release
		w.Header().Set("X-Checksum", "1")
	case "reset": // before any answer
		panic(http.ErrAbortHandler)
	case "reset-in-body": // when told to
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "half an ans")
		w.(http.Flusher).Flush()
		<-b.release
		panic(http.ErrAbortHandler)
	case "create":
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-New-Order", r.URL.Query().Get("id"))
		w.WriteHeader(http.StatusCreated)
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		fmt.Fprintf(w, `{"status":"new","orderId":%s,"padding":"%s"}`, r.URL.Query().Get("id"), strings.Repeat("x", size))
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"at": time.Now(), "path": r.URL.Path})
	}
}

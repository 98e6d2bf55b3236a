// Package tests holds the end-to-end tests: a real Envoy with the configuration
// of examples/envoy, a real Redis, ordergate as it is installed, and order
// services that know nothing of it.
package tests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/redis/go-redis/v9"
)

// stack is everything from the client's side to the backend's.
type stack struct {
	*bedtest.Bed
	t      testing.TB
	server *testbed.Redis
	redis  *redis.Client
	gate   *testbed.Gate
	envoy  *testbed.Envoy
	url    string // where clients go
	empty  func() // makes room in a Redis that was filled
}

// settings changes a stack from what the examples say.
type settings struct {
	backend   string // "127.0.0.1:port"
	orders    int    // 1..orders exist, in the file that the filter is loaded from
	gate      func(yaml string) string
	envoy     func(yaml string) string
	printed   bool     // Envoy has what "ordergate envoy" prints for the file, in place of the example
	envoyArgs []string // of the module only
	flags     []string // "--name=value", of the sidecar only
	env       []string // "KEY=value", of the process that ordergate runs in
	unready   bool     // ordergate is not waited for until it is ready
}

func newStack(t testing.TB, s settings) *stack {
	t.Helper()
	bed := bedtest.New(t)
	st := &stack{Bed: bed, t: t, server: bed.Redis()}
	st.redis = redis.NewClient(&redis.Options{Addr: st.server.Addr()})
	t.Cleanup(func() { _ = st.redis.Close() })
	st.start(s)
	return st
}

// second starts another Envoy and ordergate on the same Redis.
func (s *stack) second(change settings) *stack {
	s.t.Helper()
	other := &stack{Bed: s.Bed, t: s.t, server: s.server, redis: s.redis}
	other.start(change)
	return other
}

func (s *stack) start(change settings) {
	s.t.Helper()
	config := s.GateExample(s.server.Addr(), idFile(s.t, change.orders))
	if change.gate != nil {
		config = change.gate(config)
	}
	if *attachment == asModule {
		s.startModule(config, change)
		return
	}
	if change.unready {
		gate, err := s.GateUnready(s.t.Context(), s.Build("./cmd/sidecar", false), config)
		must(s.t, err)
		s.gate = gate
	} else {
		s.gate = s.Gate(s.Build("./cmd/sidecar", false), config, append(change.flags, change.env...)...)
	}

	if change.printed {
		config = s.print("static", s.gate.ConfigFile(), change.backend)
	} else {
		config = check(s.t)(s.EnvoyExample(s.GateAddr(s.gate, "authz"), s.GateAddr(s.gate, "proc"), change.backend))
	}
	if change.envoy != nil {
		config = change.envoy(config)
	}
	s.envoy = s.Envoy(config)
	s.url = "http://" + s.ListenerAddr(s.envoy, "orders")
}

// print returns the configuration of Envoy that "ordergate envoy" prints for a file, with free ports.
func (s *stack) print(target, file, backend string) string {
	s.t.Helper()
	args := []string{"envoy", "--for", target, "--backend", backend, "--listen", "127.0.0.1:0"}
	if testbed.EnvoyIs("1.37") {
		args = append(args, "--envoy-version", "1.37")
	}
	return s.operator(file, args...)
}

// check makes a function that passes a value on, or ends the test.
func check(t testing.TB) func(string, error) string {
	return func(v string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// idFile writes the orders 1..n, one a line, behind a header.
func idFile(t testing.TB, n int) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintln(&text, "id")
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&text, i)
	}
	path := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// A file that has changed just now may change again without a trace.
	old := time.Now().Add(-time.Minute)
	must(t, os.Chtimes(path, old, old))
	return path
}

// answer is what a client gets.
type answer struct {
	status  int
	verdict string // x-ordergate-verdict
	header  http.Header
	body    string
}

func answerOf(resp *http.Response, body []byte) answer {
	return answer{status: resp.StatusCode, verdict: resp.Header.Get("x-ordergate-verdict"), header: resp.Header, body: string(body)}
}

// client makes no connection that outlives a request, so that a test that ends
// leaves nothing behind.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send makes one request. An error is returned, since some tests provoke it.
func (s *stack) send(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		switch {
		case header[i] == "Host":
			req.Host = header[i+1]
		case header[i+1] != "":
			req.Header.Add(header[i], header[i+1])
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answerOf(resp, text), err
}

// must is send for a request that has to get an answer, soon.
func (s *stack) must(method, path, body string, header ...string) answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	a, err := s.send(ctx, method, path, body, header...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// want checks the status and the verdict of an answer.
func (a answer) want(t testing.TB, status int, verdict string) {
	t.Helper()
	if a.status != status || a.verdict != verdict {
		t.Errorf("got %d %q (%.200s), want %d %q", a.status, a.verdict, a.body, status, verdict)
	}
}

// metric returns the value of one line of /metrics, 0 if it is not there yet.
func (s *stack) metric(line string) string {
	s.t.Helper()
	return metricAt(s.t, "http://"+s.GateAddr(s.gate, "admin"), line)
}

// metrics returns what /metrics shows.
func (s *stack) metrics() string {
	s.t.Helper()
	resp, err := client.Get("http://" + s.GateAddr(s.gate, "admin") + "/metrics")
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	return string(text)
}

// metricAt is metric at an admin address.
func metricAt(t testing.TB, admin, line string) string {
	t.Helper()
	resp, err := client.Get(admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(l, line+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	mustBeDocumented(t, line)
	return "0"
}

var labelName = regexp.MustCompile(`(\w+)="`)

// mustBeDocumented fails the test if docs/metrics.md has no metric with the name and the labels of a
// line, which then is not one that only has not been counted yet.
func mustBeDocumented(t testing.TB, line string) {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	must(t, err)
	name, _, _ := strings.Cut(line, "{")
	var labels []string
	for _, m := range labelName.FindAllStringSubmatch(line, -1) {
		labels = append(labels, m[1])
	}
	slices.Sort(labels)
	for _, m := range regexp.MustCompile(`\b`+name+`(?:\{([a-z_,]*)\})?`+"`").FindAllStringSubmatch(string(page), -1) {
		if slices.Equal(slices.Sorted(slices.Values(strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' }))), labels) {
			return
		}
	}
	t.Fatalf("/metrics and docs/metrics.md have no %s", line)
}

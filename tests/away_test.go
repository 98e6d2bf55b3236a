package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// away is one way in which an ordergate may be away from its Envoy.
type away struct {
	name string
	slow time.Duration // each message to and from ordergate takes so long, or twice
	take func(*testing.T, *stack)
	back func(*testing.T, *stack) // what is stopped could not end in order; nil: nothing is
}

var aways = []away{
	{name: "killed", take: func(_ *testing.T, s *stack) { s.gate.Kill() }},
	{name: "stopped", take: func(t *testing.T, s *stack) { must(t, s.gate.Pause()) }, back: func(t *testing.T, s *stack) { must(t, s.gate.Resume()) }},
	{name: "slow", slow: 100 * time.Millisecond},
	{name: "slower than ext_authz waits", slow: time.Second},
	{name: "Redis hangs", take: func(t *testing.T, s *stack) { must(t, s.server.Pause()) }, back: func(t *testing.T, s *stack) { must(t, s.server.Resume()) }},
	{name: "Redis killed", take: func(_ *testing.T, s *stack) { s.server.Kill() }},
}

// TestAnswersAreWhole checks that a client gets each answer as a whole, or 503 or 504 before
// its first byte, while ordergate is away.
func TestAnswersAreWhole(t *testing.T) {
	needsSidecar(t, "the module is never away from Envoy")
	t.Parallel()
	for _, tt := range aways {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			b.goOn() // its streams do not wait
			s := newStack(t, settings{backend: b.addr(), orders: 5000})
			if tt.slow > 0 {
				s.slowly(b, tt.slow)
			}
			s.must("POST", "/orders/1/settle", "") // Envoy has its connections to ordergate
			if tt.take != nil {
				tt.take(t, s)
			}
			requests := answersOfAllKinds()
			atOnce(len(requests), func(i int) {
				r := requests[i]
				status, body, err := r.send(t.Context(), s.url)
				switch {
				case err != nil:
					t.Errorf("%s %s: %d with %q, and then %v", r.method, r.target, status, body, err)
				case status == r.status && body == r.body:
				case status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout:
					t.Errorf("%s %s: got %d %q, want %d %q", r.method, r.target, status, body, r.status, r.body)
				}
			})
			if tt.back != nil {
				tt.back(t, s)
			}
		})
	}
}

// slowly starts another Envoy, with slow wires to ordergate.
func (s *stack) slowly(b *backend, delay time.Duration) {
	s.t.Helper()
	authz, proc := newWire(s.t, s.GateAddr(s.gate, "authz")), newWire(s.t, s.GateAddr(s.gate, "proc"))
	authz.slow(delay)
	proc.slow(delay)
	s.envoy = s.Envoy(check(s.t)(s.EnvoyExample(authz.addr(), proc.addr(), b.addr())))
	s.url = "http://" + s.ListenerAddr(s.envoy, "orders")
}

// expected is a request with the answer that the backend has for it.
type expected struct {
	method, target, content string
	status                  int
	body                    string
}

// answersOfAllKinds has each kind of rule with each kind of answer, several times: whether
// an answer was cut off went by chance.
func answersOfAllKinds() (all []expected) {
	const times = 3
	order := 1000
	for range times {
		for _, to := range []expected{
			{method: "GET", target: "/orders/%d"}, // a lookup
			{method: "GET", target: "/about/%d"},  // under no rule
			{method: "POST", target: "/about/%d"}, // through ext_proc
			{method: "POST", target: "/orders?n=%d", content: `{"amount":1}`},
			{method: "POST", target: "/orders/%d/settle"},
			{method: "POST", target: "/orders/%d/settle", content: `{"amount":1}`},
		} {
			for _, answer := range []expected{
				{target: "do=answer&status=200&body=fine", status: 200, body: "fine"},
				{target: "do=answer&status=404&body=there+is+no+such+order", status: 404, body: "there is no such order"},
				{target: "do=answer&status=410&body=gone", status: 410, body: "gone"},
				{target: "do=answer&status=201&body=%%7B%%22orderId%%22:%d%%7D", status: 201, body: `{"orderId":%d}`},
				{target: "do=answer&status=500&body=oops", status: 500, body: "oops"},
				{target: "do=later&status=200&body=fine", status: 200, body: "fine"},
				{target: "do=later&status=404&body=there+is+no+such+order", status: 404, body: "there is no such order"},
				{target: "do=stream&status=200", status: 200, body: "part 1\npart 2\n"},
				{target: "do=stream&status=404", status: 404, body: "part 1\npart 2\n"},
			} {
				order++
				with := func(text string) string {
					return strings.ReplaceAll(strings.ReplaceAll(text, "%d", fmt.Sprint(order)), "%%", "%")
				}
				joint := "?"
				if strings.Contains(to.target, "?") {
					joint = "&"
				}
				all = append(all, expected{to.method, with(to.target + joint + answer.target), to.content, answer.status, with(answer.body)})
			}
		}
	}
	return all
}

// send returns what comes of an answer. An error behind a status says that its framing told
// of more than has come.
func (e expected) send(ctx context.Context, url string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, e.method, url+e.target, strings.NewReader(e.content))
	if err != nil {
		return 0, "", err
	}
	if e.content != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// TestKilledWithinAnAnswer kills ordergate while answers are on their way. That to a
// settlement is cut off, and its client can tell: the lock is lost with ordergate. Others
// have come to their ends.
func TestKilledWithinAnAnswer(t *testing.T) {
	needsSidecar(t, "the module ends with Envoy")
	t.Parallel()
	for _, tt := range []struct {
		name, method, target string
		whole                bool
	}{
		{"lookup", "GET", "/orders/1", true},
		{"lookup of no order", "GET", "/orders/1?status=404", true},
		{"no rule", "POST", "/about", true},
		{"settle", "POST", "/orders/2/settle", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 10})
			target := tt.target + "?do=stream"
			if strings.Contains(tt.target, "?") {
				target = tt.target + "&do=stream"
			}
			req, err := http.NewRequestWithContext(t.Context(), tt.method, s.url+target, http.NoBody)
			must(t, err)
			resp, err := client.Do(req)
			must(t, err)
			defer resp.Body.Close()
			answer := bufio.NewReader(resp.Body)
			if line, err := answer.ReadString('\n'); line != "part 1\n" {
				t.Fatalf("got %q, %v", line, err)
			}
			s.gate.Kill()
			if !tt.whole { // without the backend's doing
				text, err := io.ReadAll(answer)
				if err == nil {
					t.Errorf("the answer ends with %q as if it were whole", text)
				}
				return
			}
			// Envoy has noticed, and each other answer goes on.
			bedtest.Eventually(t, "ordergate is away", func() bool { return s.must("POST", "/orders/3/settle", "").status == 503 })
			b.goOn()
			if text, err := io.ReadAll(answer); err != nil || string(text) != "part 2\n" {
				t.Errorf("the rest is %q, %v", text, err)
			}
		})
	}
}

// TestKilledWithinACreate kills ordergate while it reads the answer to a create: the client
// gets 503, and nothing of that answer.
func TestKilledWithinACreate(t *testing.T) {
	needsSidecar(t, "the module ends with Envoy")
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	done := make(chan answer, 1)
	go func() {
		a, err := s.send(t.Context(), "POST", "/orders?do=stream&status=201", "{}", "Content-Type", "application/json")
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders") == 1 })
	s.gate.Kill()
	if a := <-done; a.status != 503 {
		t.Errorf("got %d %q, want 503", a.status, a.body)
	}
	b.goOn()
}

package tests

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// later sends a request and returns its answer on a channel.
func (s *stack) later(method, path, body string, header ...string) <-chan answer {
	done := make(chan answer, 1)
	go func() { done <- s.must(method, path, body, header...) }()
	return done
}

// TestOnceRedisFull has Redis take no more writes while calls run. Their answers are stored, and what
// they undo is undone. No call begins that could not be undone, or whose answer could not be stored.
func TestOnceRedisFull(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	for _, order := range []string{"2", "3", "4", "5"} {
		s.must("POST", "/orders/"+order+"/settle", "").want(t, 200, "")
	}
	const isJSON = "application/json"
	calls := []struct {
		path, body string
		status     int
		header     []string
	}{
		{"/orders/1/settle", "", 200, nil},
		{"/batch", `{"ids":[11,12]}`, 200, []string{"Content-Type", isJSON}},
		{"/payments", "10", 200, []string{"Idempotency-Key", "k"}},
		{"/orders/13/both", "", 200, []string{"Idempotency-Key", "b"}},
		{"/orders/2/undo", "", 200, nil},
		{"/orders/3/undo", "", 404, nil},
		{"/orders/4/undo", "", 500, nil},
	}
	var running []<-chan answer
	for _, c := range calls {
		path := fmt.Sprintf("%s?hang&status=%d", c.path, c.status)
		running = append(running, s.later("POST", path, c.body, c.header...))
		bedtest.Eventually(t, "the backend works", func() bool { return p.paid(c.path) == 1 })
	}
	empty := s.fill()
	close(p.release)
	for i, c := range calls {
		if got := <-running[i]; got.status != c.status {
			t.Errorf("%s: %d %q, want %d", c.path, got.status, got.verdict, c.status)
		}
	}
	s.must("POST", "/orders/5/undo", "").want(t, 503, "unavailable")
	s.must("POST", "/orders/6/settle", "").want(t, 503, "unavailable")
	s.must("POST", "/payments", "10", "Idempotency-Key", "other").want(t, 503, "unavailable")
	again := func(when string) {
		t.Helper()
		for _, c := range calls[:4] {
			path := fmt.Sprintf("%s?hang&status=%d", c.path, c.status)
			var got answer
			bedtest.Eventually(t, when+", "+c.path+" is given again", func() bool {
				got = s.must("POST", path, c.body, c.header...)
				return got.verdict == "replayed"
			})
			p.wantPaid(t, c.path, 1)
		}
		s.must("POST", "/orders/3/settle", "").want(t, 200, "replayed")
		s.must("POST", "/orders/5/settle", "").want(t, 200, "replayed")
		if a := s.must("POST", "/orders/4/settle", ""); a.status != 409 {
			t.Errorf("%s, suspended: %d %q", when, a.status, a.verdict)
		}
	}
	again("while it is full")
	s.must("POST", "/orders/2/settle", "").want(t, 503, "unavailable")
	p.wantPaid(t, "/orders/5/undo", 0)
	p.wantPaid(t, "/orders/6/settle", 0)
	empty()
	bedtest.Eventually(t, "Redis takes writes", func() bool { return s.must("POST", "/orders/7/settle", "").status == 200 })
	again("afterwards")
	s.must("POST", "/orders/2/settle", "").want(t, 200, "")
	p.wantPaid(t, "/orders/2/settle", 2)
	for _, order := range []string{"1", "2", "3", "4", "13"} {
		s.wantFate(order, released)
	}
}

// failsWith503 gives 503, and a redirect to the login, the meaning that a backend did nothing.
func failsWith503(t testing.TB) func(string) string {
	return edit(t, "filters:\n", "answer: {failed: [{status: 503}, {status: 302, header: {location: /login$}}]}\nfilters:\n")
}

// TestOnceAt503 has calls answered with 503, by the backend and by Envoy, with and without a rule that
// says what the backend's means.
func TestOnceAt503(t *testing.T) {
	t.Parallel()
	for name, proves := range map[string]bool{"proves nothing": false, "named as failed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPayer(t)
			change := onceRules
			fate, verdict := held, "busy"
			if proves {
				change, fate, verdict = both(onceRules, failsWith503(t)), released, ""
			}
			s := newStack(t, settings{backend: p.addr(), orders: 200, gate: change})

			s.must("POST", "/orders/1/settle?status=503", "").want(t, 503, "")
			s.wantFate("1", fate)
			if a := s.must("POST", "/orders/1/settle", ""); a.verdict != verdict {
				t.Errorf("the settlement again: %d %q", a.status, a.verdict)
			}
			s.must("POST", "/orders/2/settle", "").want(t, 200, "")
			s.must("POST", "/orders/2/undo?status=503", "").want(t, 503, "")
			s.wantFate("2", fate)
			if a := s.must("POST", "/orders/2/settle", ""); proves != (a.verdict == "replayed") || !proves && a.verdict != "busy" {
				t.Errorf("a settlement after the undo: %d %q", a.status, a.verdict)
			}
			p.wantPaid(t, "/orders/2/settle", 1)
			key := []string{"Idempotency-Key", "k"}
			s.must("POST", "/payments?status=503", "10", key...).want(t, 503, "")
			paid := 1
			if proves {
				paid = 2
			}
			bedtest.Eventually(t, "the key's lock has met its fate", func() bool {
				a := s.must("POST", "/payments?status=503", "10", key...)
				return !proves && a.verdict == "in_use" || proves && a.verdict == "" && a.status == 503
			})
			p.wantPaid(t, "/payments", paid)

			// A client may choose a redirect by its Accept. Where the rule names those that are failures, any
			// other is that of a success. Where it does not, each is done, and its answer is not stored.
			for to, again := range map[string]string{"5/settle?header=Location:/login": "", "6/settle?header=Location:/thanks": "replayed"} {
				s.must("POST", "/orders/"+to+"&status=302", "").want(t, 302, "")
				s.wantFate(to[:1], released)
				status := 302
				if !proves {
					again, status = "duplicate", 409
				}
				s.must("POST", "/orders/"+to+"&status=302", "").want(t, status, again)
			}

			// Envoy's own 503, and one that breaks off, prove nothing in either case.
			_, _ = s.send(t.Context(), "POST", "/orders/3/settle?status=503&size=100000&break", "")
			s.wantFate("3", held)
			s.must("POST", "/orders/4/settle", "").want(t, 200, "")
			undo := s.later("POST", "/orders/4/undo?hang", "")
			bedtest.Eventually(t, "the backend works", func() bool { return p.paid("/orders/4/undo") == 1 })
			p.CloseClientConnections()
			(<-undo).want(t, 503, "")
			s.wantFate("4", held)
			s.must("POST", "/orders/4/settle", "").want(t, 409, "busy")
			p.wantPaid(t, "/orders/4/settle", 1)
		})
	}
}

// sharedOnce enforces a tenth of the orders, in every rule of their lock, and undoes lists.
func sharedOnce(share string) func(string) string {
	return func(yaml string) string {
		yaml = onceRules(yaml)
		for _, rule := range []string{"commission-settle", "batch", "undo", "batch-undo", "both", "refund"} {
			yaml = strings.Replace(yaml, "  - name: "+rule+"\n", "  - name: "+rule+"\n    mode: {enforce: "+share+"}\n", 1)
		}
		return yaml
	}
}

// TestOnceAtTheBorder settles and undoes orders of a share beside orders outside of it.
func TestOnceAtTheBorder(t *testing.T) {
	t.Parallel()
	p := newPayer(t)
	r := newReloads(t, settings{backend: p.addr(), orders: 2000, gate: sharedOnce("10%")})
	in, out := someOf(1000, 9)
	list := func(at int) string { return fmt.Sprintf(`{"ids":[%d,%d]}`, in[at], out[at]) }
	batch := func(at int, query string) answer {
		return r.must("POST", "/batch?at="+fmt.Sprint(at)+query, list(at), "Content-Type", "application/json")
	}
	of := func(order int, action string) answer {
		return r.must("POST", fmt.Sprintf("/orders/%d/%s", order, action), "")
	}
	for at := range 4 {
		batch(at, "").want(t, 200, "")
		batch(at, "").want(t, 200, "replayed")
		of(in[at], "settle").want(t, 409, "duplicate")
	}
	of(out[0], "undo").want(t, 200, "") // it is only observed, and undoes an enforced settlement
	of(out[1], "undo?status=404").want(t, 404, "")
	of(out[2], "undo?status=500").want(t, 500, "")
	of(in[3], "undo").want(t, 200, "")
	bedtest.Eventually(t, "the undos have ended", func() bool { return len(r.redis.Keys(t.Context(), "order:lock:*").Val()) == 0 })
	batch(0, "").want(t, 409, "duplicate")
	batch(1, "").want(t, 200, "replayed")
	batch(2, "").want(t, 409, "duplicate")
	batch(3, "").want(t, 409, "duplicate")
	p.wantPaid(t, "/batch", 4)

	// A list across the border undoes both.
	of(in[4], "settle").want(t, 200, "")
	batch(5, "").want(t, 200, "")
	r.must("POST", "/batch/undo", fmt.Sprintf(`{"ids":[%d,%d]}`, in[4], out[5]), "Content-Type", "application/json").want(t, 200, "")
	of(in[4], "settle").want(t, 200, "")
	batch(5, "").want(t, 409, "duplicate")
	of(in[5], "settle").want(t, 409, "duplicate")

	// An undo outside of the share runs while a list with its order is settled.
	undo := r.later("POST", fmt.Sprintf("/orders/%d/undo?hang", out[6]), "")
	bedtest.Eventually(t, "the backend works", func() bool { return p.paid(fmt.Sprintf("/orders/%d/undo", out[6])) == 1 })
	batch(6, "").want(t, 200, "")
	close(p.release)
	(<-undo).want(t, 200, "")
	bedtest.Eventually(t, "the undo has ended", func() bool { return len(r.redis.Keys(t.Context(), "order:lock:*").Val()) == 0 })
	if a := batch(6, ""); a.status == 200 && a.verdict == "replayed" {
		t.Errorf("the batch is reported as settled after one of its orders was undone: %d %q", a.status, a.verdict)
	}

	// The border moves: what was settled within it is undone outside of it, and settled within it again.
	share := func(to string) {
		r.wantAfter("applied", func() {
			r.rewrite(regexp.MustCompile(`\{enforce: [^}]*\}`).ReplaceAllString(r.text, "{enforce: "+to+"}"))
		})
	}
	of(in[7], "settle").want(t, 200, "")
	of(in[8], "settle").want(t, 200, "")
	share("0.01%")
	of(in[7], "undo").want(t, 200, "")
	of(in[8], "undo?status=404").want(t, 404, "")
	bedtest.Eventually(t, "the undos have ended", func() bool { return len(r.redis.Keys(t.Context(), "order:lock:*").Val()) == 0 })
	share("50%")
	of(in[7], "settle").want(t, 200, "")
	of(in[8], "settle").want(t, 200, "replayed")
}

package tests

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// withMode gives the rule that settles a mode, and adds a rule for lists.
func withMode(mode string) func(string) string {
	return func(yaml string) string {
		return strings.ReplaceAll(shortLease(yaml)+`
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true}
    settle: {lock: settlement}
`, "\n    match: {methods: [POST], path: \"/orders/{id}/settle\"}", "\n    mode: "+mode+"\n    match: {methods: [POST], path: \"/orders/{id}/settle\"}")
	}
}

// sharing gives the rules that look up or settle a mode.
func sharing(mode string) func(string) string {
	return func(yaml string) string {
		yaml = withMode(mode)(yaml)
		for _, rule := range []string{"order-lookup", "batch"} {
			yaml = bedtest.Replace(yaml, "  - name: "+rule+"\n", "  - name: "+rule+"\n    mode: "+mode+"\n")
		}
		return yaml
	}
}

// inShare reports whether a share of orders, in hundredths of a percent, has an order.
func inShare(order, share int) bool { return gate.OrderPart(strconv.Itoa(order)) < share }

// someOf returns the first orders in a share, and the first outside of it.
func someOf(share, n int) (in, out []int) {
	for order := 1; len(in) < n || len(out) < n; order++ {
		switch {
		case inShare(order, share) && len(in) < n:
			in = append(in, order)
		case !inShare(order, share) && len(out) < n:
			out = append(out, order)
		}
	}
	return in, out
}

// TestShareOfOrders enforces half of the orders. Two instances enforce the same half.
func TestShareOfOrders(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	change := settings{backend: b.addr(), orders: 100, gate: sharing("{enforce: 50%}")}
	s := newStack(t, change)
	other := s.second(change)
	const share = 5000
	in, out := someOf(share, 5)

	for _, id := range append(in, out...) {
		path := fmt.Sprintf("/orders/%d/settle", id)
		done := s.inBackground(t.Context(), path+"?do=hang")
		bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived(path) == 1 })
		for _, instance := range []*stack{s, other} {
			a := instance.must("POST", path, "")
			if want := map[bool]int{true: 409, false: 200}[inShare(id, share)]; a.status != want {
				t.Errorf("order %d, settled twice: %d %s, want %d", id, a.status, a.verdict, want)
			}
		}
		t.Cleanup(func() { <-done })
	}
	// An absent order is refused, or not, by its own hash.
	for absent := 1000; absent < 1020; absent++ {
		a := s.must("GET", fmt.Sprintf("/orders/%d", absent), "")
		if want := map[bool]int{true: 404, false: 200}[inShare(absent, share)]; a.status != want {
			t.Errorf("order %d, absent: %d %s, want %d", absent, a.status, a.verdict, want)
		}
	}
	// A list with one order of the share takes all locks, and one without takes none.
	json := []string{"content-type", "application/json"}
	s.must("POST", "/batch", fmt.Sprintf(`{"ids":[%d,%d]}`, out[0], in[0]), json...).want(t, 409, "busy")
	s.must("POST", "/batch", fmt.Sprintf(`{"ids":[%d,%d]}`, out[0], out[1]), json...).want(t, 200, "")
	// A settlement that cannot be read may be of any order. A lookup passes.
	s.must("POST", fmt.Sprintf("/orders/0%d/settle", out[0]), "").want(t, 400, "invalid")
	s.must("PUT", fmt.Sprintf("/orders/%d/settle", out[0]), "").want(t, 400, "ambiguous")
	s.must("POST", fmt.Sprintf("/orders/%d/settle?id=%d", out[0], in[0]), "").want(t, 400, "ambiguous")
	s.must("GET", fmt.Sprintf("/orders/0%d", out[0]), "").want(t, 200, "")

	b.goOn()
	for _, r := range b.seen() {
		var id int
		if _, err := fmt.Sscanf(r.URL.Path, "/orders/%d/settle", &id); err == nil && (r.Header.Get("x-ordergate-fence") != "") != inShare(id, share) {
			t.Errorf("order %d reaches the backend with fence %q", id, r.Header.Get("x-ordergate-fence"))
		}
	}
	if n := s.redis.Exists(t.Context(), fmt.Sprint("order:lock:", out[2])).Val(); n != 0 {
		t.Error("an order outside of the share has its lock")
	}
	for line, want := range map[string]string{
		`ordergate_decisions_total{action="settle",mode="enforce",rule="commission-settle",verdict="acquired"}`: "5",
		`ordergate_decisions_total{action="settle",mode="observe",rule="commission-settle",verdict="acquired"}`: "5",
		`ordergate_decisions_total{action="settle",mode="enforce",rule="commission-settle",verdict="busy"}`:     "5",
		`ordergate_decisions_total{action="settle",mode="observe",rule="commission-settle",verdict="busy"}`:     "5",
		`ordergate_decisions_total{action="settle",mode="enforce",rule="batch",verdict="busy"}`:                 "1",
		`ordergate_decisions_total{action="lookup",mode="observe",rule="order-lookup",verdict="invalid"}`:       "1",
	} {
		if n := s.metric(line); n != want {
			t.Errorf("%s is %s, want %s", line, n, want)
		}
	}
	for _, lock := range []string{"settlement", "settlement:observe"} {
		line := fmt.Sprintf(`ordergate_lock_outcome_total{lock=%q,outcome="known"}`, lock)
		bedtest.Eventually(t, line, func() bool { n, _ := strconv.Atoi(s.metric(line)); return n >= 5 })
	}
}

// TestShareByHeader enforces requests with a header.
func TestShareByHeader(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(
		sharing(`{enforce: {header: X-Canary, value: "1", locks: true}}`), edit(t, "    mode: {enforce: {header: X-Canary, value: \"1\", locks: true}}\n    match: {methods: [GET", "    mode: {enforce: {header: x-canary, value: \"1\"}}\n    match: {methods: [GET"))})
	canary := []string{"X-Canary", "1"}
	s.must("GET", "/orders/77", "", canary...).want(t, 404, "absent")
	s.must("GET", "/orders/77", "").want(t, 200, "")
	s.must("GET", "/orders/77", "", "x-canary", "2").want(t, 200, "")
	s.must("GET", "/orders/77", "", "x-canary", "1", "x-canary", "1").want(t, 200, "")
	s.must("GET", "/orders/x", "", canary...).want(t, 400, "invalid")
	s.must("GET", "/orders/x", "").want(t, 200, "")

	done := s.inBackground(t.Context(), "/orders/5/settle?do=hang") // takes no lock
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/5/settle") == 1 })
	s.must("POST", "/orders/5/settle", "", canary...).want(t, 200, "")
	s.must("POST", "/batch", `{"ids":[5]}`, "x-canary", "1", "content-type", "application/json").want(t, 200, "")
	b.goOn()
	<-done
	fences := 0
	for _, r := range b.seen() {
		if r.Header.Get("x-ordergate-fence") != "" {
			fences++
		}
	}
	if fences != 2 {
		t.Errorf("%d calls had a fence, want 2", fences)
	}
}

// TestShareGrowsByReload has the share grow while calls run: an order that was enforced stays
// so, and a call ends by the rules that it began with.
func TestShareGrowsByReload(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	r := newReloads(t, settings{backend: b.addr(), orders: 200, gate: sharing("{enforce: 20%}")})
	var paths []string
	var calls sync.WaitGroup
	for id := 1; id <= 20; id++ {
		path := fmt.Sprintf("/orders/%d/settle", id)
		done := r.inBackground(t.Context(), path+"?do=hang")
		calls.Go(func() { <-done })
		bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived(path) == 1 })
		paths = append(paths, path)
	}
	for _, share := range []int{2000, 6000, 10_000} {
		if share > 2000 {
			mode := fmt.Sprintf("{enforce: %d%%}", share/100)
			r.wantAfter("applied", func() { r.rewrite(strings.ReplaceAll(r.text, "{enforce: 20%}", mode)) })
		}
		for i, path := range paths {
			// The calls that run hold the locks of the first share only.
			want := map[bool]int{true: 409, false: 200}[inShare(i+1, 2000)]
			if a := r.must("POST", path, ""); a.status != want {
				t.Errorf("%s with a share of %d: %d %s, want %d", path, share, a.status, a.verdict, want)
			}
		}
		for absent := 1000; absent < 1020; absent++ {
			a := r.must("GET", fmt.Sprintf("/orders/%d", absent), "")
			if want := map[bool]int{true: 404, false: 200}[inShare(absent, share)]; a.status != want {
				t.Errorf("order %d, absent, with a share of %d: %d, want %d", absent, share, a.status, want)
			}
		}
	}
	b.goOn()
	calls.Wait()
	for i := range paths {
		r.wantFate(strconv.Itoa(i+1), released)
	}
}

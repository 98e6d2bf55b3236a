package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed"
)

var update = flag.Bool("update", false, "write the golden files anew")

// asPromised is a round of all acts in which every promise holds.
func asPromised(service string, payments int) result {
	ms := func(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }
	return result{
		service: service,
		without: acts{
			madeUp:   tally{requests: 2000, reached: 2000, p50: ms(9.994), p99: ms(9.996)},
			existing: tally{requests: 400, reached: 400, p50: ms(0.25), p99: ms(99.96)},
			creates:  tally{requests: 100, reached: 100, p50: ms(3), p99: ms(12.34)},
			found:    50,
			settle:   tally{requests: 500, reached: 500, p50: ms(97), p99: ms(1234)},
			payments: payments,
			repeats:  tally{requests: 100, reached: 100, p50: ms(3), p99: ms(12.34)},
			twice:    tally{requests: 100, reached: 100, p50: ms(3), p99: ms(12.34)},
			orders:   100,
		},
		with: acts{
			madeUp:   tally{requests: 2000, byGate: 2000, p50: ms(1), p99: ms(2)},
			existing: tally{requests: 400, reached: 400, p50: ms(1), p99: ms(2)},
			creates:  tally{requests: 100, reached: 100, p50: ms(1), p99: ms(2)},
			found:    50,
			settle:   tally{requests: 500, reached: 101, byGate: 399, p50: ms(1), p99: ms(2)},
			payments: 1,
			repeats:  tally{requests: 100, byGate: 100, p50: ms(1), p99: ms(2)},
			same:     100,
			twice:    tally{requests: 100, reached: 50, byGate: 50, p50: ms(1), p99: ms(2)},
			orders:   50,
		},
	}
}

// notAsPromised is a round in which none does.
func notAsPromised(service string) result {
	r := asPromised(service, 2)
	r.with.madeUp = tally{requests: 2000, reached: 3, byGate: 1996, bad: 1, firstBad: "GET /orders/9: 500"}
	r.with.existing = tally{requests: 400, reached: 399, byGate: 1, bad: 1, firstBad: "GET /orders/7: 404 absent"}
	r.with.creates = tally{requests: 100, reached: 99, byGate: 1, bad: 1, firstBad: "GET /orders/8: 404 absent"}
	r.with.found = 49
	r.with.settle = tally{requests: 500, reached: 499, bad: 1, firstBad: "POST /orders/6/settle: 500"}
	r.with.payments = 2
	r.with.repeats, r.with.same = tally{requests: 100, reached: 1, byGate: 99}, 99
	r.with.twice, r.with.orders = tally{requests: 100, reached: 51, byGate: 48, bad: 1, firstBad: "POST /orders: 409 in_use"}, 51
	return r
}

func TestRender(t *testing.T) {
	good := []result{asPromised("PHP", 16), asPromised("Java", 64)}
	bad := []result{notAsPromised("PHP"), asPromised("Java", 64)}
	for _, test := range []struct {
		golden  string
		results []result
		style   style
	}{
		{"plain.txt", good, style{}},
		{"coloured.txt", good, style{colours: true}},
		{"broken.txt", bad, style{}},
		{"broken-coloured.txt", bad, style{colours: true}},
	} {
		t.Run(test.golden, func(t *testing.T) {
			got := renderTable(test.results, test.style) + renderConclusions(test.results, test.style)
			path := filepath.Join("testdata", test.golden)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("go test ./examples/demo -update writes it anew (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRenderWidth holds the table to a terminal of 80 columns, and the coloured
// one to what the plain one shows.
func TestRenderWidth(t *testing.T) {
	results := []result{asPromised("PHP", 16), asPromised("Java", 64)}
	text := renderTable(results, style{})
	for line := range strings.Lines(text) {
		if n := len(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	coloured := renderTable(results, style{colours: true})
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m"} {
		if !strings.Contains(coloured, code) {
			t.Errorf("no %q in the coloured table", code)
		}
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	if diff := cmp.Diff(text, coloured); diff != "" {
		t.Errorf("the colours change the text (-plain +coloured):\n%s", diff)
	}
}

func TestBrokenPromises(t *testing.T) {
	change := func(f func(*acts)) []result {
		r := asPromised("PHP", 16)
		f(&r.with)
		return []result{r, asPromised("Java", 64)}
	}
	for _, test := range []struct {
		name    string
		results []result
		want    []string
	}{
		{"all hold", change(func(*acts) {}), nil},
		{"false positives", change(func(a *acts) { a.madeUp.reached = falsePositives }), nil},
		{"one too many", change(func(a *acts) { a.madeUp.reached = falsePositives + 1 }),
			[]string{"PHP: 3 of 2000 made-up IDs reached the service, a filter's false positives would be 2 at most"}},
		{"without, nothing is promised", []result{{service: "PHP", with: asPromised("PHP", 1).with}}, nil},
		{"no payment", change(func(a *acts) { a.payments = 0 }), []string{"PHP: the order was paid 0 times"}},
		{"all broken", []result{notAsPromised("PHP")}, []string{
			"PHP: 3 of 2000 made-up IDs reached the service, a filter's false positives would be 2 at most",
			"PHP: 1 of 2000 made-up IDs were not answered 404, such as GET /orders/9: 500",
			"PHP: 1 of 400 orders that exist were not answered 200, such as GET /orders/7: 404 absent",
			"PHP: 49 of 50 new orders were found at once, and this was answered: GET /orders/8: 404 absent",
			"PHP: the order was paid 2 times",
			"PHP: 99 of 100 repeated settlements had the answer of the first, and 1 reached the service",
			"PHP: 50 creates, each sent twice, made 51 orders, and 1 were not answered 201, such as POST /orders: 409 in_use",
			"PHP: 1 of 500 settlements were answered neither 200 nor 409 busy, such as POST /orders/6/settle: 500",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, brokenPromises(test.results)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPercentile(t *testing.T) {
	upTo := func(n int) []time.Duration { // n, ..., 2, 1
		values := make([]time.Duration, n)
		for i := range values {
			values[i] = time.Duration(n - i)
		}
		return values
	}
	for _, test := range []struct {
		values []time.Duration
		p      int
		want   time.Duration
	}{
		{nil, 50, 0},
		{upTo(1), 1, 1},
		{upTo(1), 99, 1},
		{upTo(2), 50, 1},
		{upTo(2), 51, 2},
		{upTo(3), 50, 2},
		{upTo(100), 99, 99},
		{upTo(100), 100, 100},
		{upTo(101), 99, 100},
		{upTo(2000), 99, 1980},
	} {
		t.Run(fmt.Sprintf("p%d of %d", test.p, len(test.values)), func(t *testing.T) {
			before := slices.Clone(test.values)
			if got := percentile(test.values, test.p); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			if !slices.Equal(test.values, before) {
				t.Error("the values were sorted in place")
			}
		})
	}
}

func TestCount(t *testing.T) {
	exchanges := []*exchange{
		{method: "GET", path: "/orders/1", status: 200, took: 1},
		{method: "GET", path: "/orders/1", status: 503, took: 2},
		{method: "GET", path: "/orders/2", status: 404, verdict: "absent", took: 3},
		{method: "GET", path: "/orders/3", err: context.DeadlineExceeded, took: 4},
	}
	log := map[string]int{"GET /orders/1": 2, "GET /orders/3": 1, "GET /orders/4": 9, "POST /orders/1": 9}
	got := count(exchanges, log, func(x *exchange) bool { return x.status != 503 })
	want := tally{requests: 4, reached: 3, byGate: 1, bad: 2, firstBad: "GET /orders/1: 503", p50: 2, p99: 4}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestMadeUpIDs(t *testing.T) {
	ids := madeUpIDs(5000)
	lengths := make(map[int]bool)
	for _, id := range ids {
		lengths[len(fmt.Sprint(id))] = true
	}
	for n := range lengths {
		if n < 12 || n > 18 {
			t.Errorf("an ID has %d digits", n)
		}
	}
	slices.Sort(ids)
	if len(lengths) != 7 || len(slices.Compact(ids)) != 5000 {
		t.Errorf("%d lengths, want 7; %d different IDs, want 5000", len(lengths), len(slices.Compact(ids)))
	}
}

// TestAtOnce shows that settlements are really simultaneous: every call waits
// for all others to be there.
func TestAtOnce(t *testing.T) {
	var there atomic.Int64
	all := make(chan struct{})
	atOnce(100, 100, func(int) {
		if there.Add(1) == 100 {
			close(all)
		}
		select {
		case <-all:
		case <-t.Context().Done():
		}
	})
	if there.Load() != 100 {
		t.Errorf("%d calls, want 100", there.Load())
	}

	var now, most, calls atomic.Int64
	atOnce(3, 50, func(int) {
		most.Store(max(most.Load(), now.Add(1)))
		calls.Add(1)
		now.Add(-1)
	})
	if most.Load() > 3 || calls.Load() != 50 {
		t.Errorf("%d calls, %d at once; want 50, 3 at most", calls.Load(), most.Load())
	}
}

func TestWithoutOrdergate(t *testing.T) {
	bed, err := testbed.New(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	example, err := bed.EnvoyExample("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	config, err := withoutOrdergate(example)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"ext_authz", "ext_proc", "ordergate-authz", "ordergate-proc", "port_value: 1\n", "port_value: 2\n"} {
		if strings.Contains(config, gone) {
			t.Errorf("%q is still there", gone)
		}
	}
	for _, kept := range []string{"name: reads", "name: writes", "timeout: 30s", "normalize_path: true", "envoy.filters.http.router", "port_value: 3\n"} {
		if !strings.Contains(config, kept) {
			t.Errorf("%q is gone too", kept)
		}
	}
	if _, err := withoutOrdergate(strings.ReplaceAll(example, "ordergate-proc", "other")); err == nil {
		t.Error("an example without ordergate-proc was taken")
	}
}

func TestScreen(t *testing.T) {
	var b strings.Builder
	s := newScreen(&b, func(string) string { return "" })
	if err := s.step("waiting", func() (string, error) { return "here", nil }); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.HasPrefix(got, "  waiting  ") || strings.ContainsAny(got, "\r\x1b") {
		t.Errorf("where there is no terminal: %q", got)
	}

	b.Reset()
	s = &screen{w: &b, terminal: true, style: style{colours: true}}
	failure := errors.New("no")
	if err := s.step("waiting", func() (string, error) { return "", failure }); !errors.Is(err, failure) {
		t.Errorf("got error %v, want %v", err, failure)
	}
	if want := "  waiting ...\r\x1b[K"; b.String() != want {
		t.Errorf("after an error: %q, want %q", b.String(), want)
	}
}

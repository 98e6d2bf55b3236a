package tests

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// database is an order service that has the orders 1..n, and answers 404 for others.
type database struct {
	*httptest.Server
	mu      sync.Mutex
	missing map[string]int // by the verdict that came with the request
}

func newDatabase(t testing.TB, n int) *database {
	d := &database{missing: make(map[string]int)}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
		if err == nil && id <= n {
			return
		}
		d.mu.Lock()
		d.missing[r.Header.Get("x-ordergate-verdict")]++
		d.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(func() {
		d.CloseClientConnections()
		d.Close()
	})
	return d
}

func (d *database) addr() string { return strings.TrimPrefix(d.URL, "http://") }

func (d *database) missed(verdict string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.missing[verdict]
}

// leaky gives the filter of the example a rate of one in twenty, and these settings.
func leaky(t testing.TB, alert, settings string) func(string) string {
	return both(edit(t,
		"    false_positive_rate: 0.001", "    false_positive_rate: 0.05",
		"alert_false_positive_rate: 0.005", "alert_false_positive_rate: "+alert,
	), filterOf(settings))
}

// probe asks for n orders, the first of which is given, with a few requests at once.
func (s *stack) probe(method string, from, n int) {
	s.t.Helper()
	const callers = 8
	pool := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer pool.CloseIdleConnections()
	atOnce(callers, func(caller int) {
		for id := from + caller; id < from+n; id += callers {
			ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
			req, err := http.NewRequestWithContext(ctx, method, s.url+"/orders/"+strconv.Itoa(id), nil)
			if err == nil {
				var resp *http.Response
				if resp, err = pool.Do(req); err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
			cancel()
			if err != nil {
				s.t.Errorf("%s order %d: %v", method, id, err)
			}
		}
	})
}

// number returns the value of one line of /metrics.
func (s *stack) number(line string) float64 {
	s.t.Helper()
	n, err := strconv.ParseFloat(s.metric(line), 64)
	must(s.t, err)
	return n
}

const (
	passedMetric   = `ordergate_filter_passed_but_missing_total{filter="orders"}`
	measuredMetric = `ordergate_filter_measured_false_positive_rate{filter="orders"}`
	alertMetric    = `ordergate_filter_false_positive_alert{filter="orders"}`
	probedMetric   = `ordergate_filter_probed_ids{filter="orders"}`
)

func about(got, want, off float64) bool { return math.Abs(got-want) <= off*want }

// TestFilterMeasuresItself asks for orders that do not exist. One in twenty passes,
// which the backend tells.
func TestFilterMeasuresItself(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, 990)
	s := newStack(t, settings{backend: d.addr(), orders: 990, gate: leaky(t, "0.01", "capacity: 1000")})
	if rate := s.number(measuredMetric); !math.IsNaN(rate) {
		t.Errorf("measured %g before any lookup", rate)
	}
	s.probe(http.MethodGet, 1, 990) // these exist
	s.probe(http.MethodGet, 100_001, 1500)
	s.probe(http.MethodHead, 101_501, 500)
	s.probe(http.MethodGet, 100_001, 200) // again
	s.probe(http.MethodPost, 100_001, 20) // no lookup
	passed := d.missed("maybe")
	if passed < 40 {
		t.Fatalf("only %d of 2000 passed", passed)
	}
	bedtest.Eventually(t, "what passed is counted", func() bool { return s.number(passedMetric) == float64(passed) })
	bedtest.Eventually(t, "the rate is known", func() bool {
		return about(s.number(measuredMetric), s.number(`ordergate_filter_estimated_false_positive_rate{filter="orders"}`), 0.5)
	})
	bedtest.Eventually(t, "the alert is on", func() bool { return s.number(alertMetric) == 1 })
	if n := strings.Count(gateLog(t, s), "more absent orders pass the filter"); n != 1 {
		t.Errorf("%d lines say so", n)
	}
	resp, err := client.Get("http://" + s.GateAddr(s.gate, "admin") + "/readyz")
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	if want := "of the absent IDs pass, alert_false_positive_rate is 1%"; resp.StatusCode != 200 || !strings.Contains(string(text), want) {
		t.Errorf("/readyz: %d, %s", resp.StatusCode, text)
	}
	if n := s.number(probedMetric); !about(n, 2000, 0.02) {
		t.Errorf("%g IDs probed, want 2000", n)
	}
	bedtest.Eventually(t, "Redis has them", func() bool {
		keys, err := s.redis.Keys(t.Context(), "ordergate:{orders}:probed:*").Result()
		must(t, err)
		return len(keys) > 0 && about(float64(s.redis.PFCount(t.Context(), keys...).Val()), 2000, 0.02)
	})
}

// gateLog returns what ordergate has written.
func gateLog(t testing.TB, s *stack) string {
	t.Helper()
	text, err := os.ReadFile(s.gate.Output())
	must(t, err)
	return string(text)
}

// TestFilterExpandsItself has one that passes too much grow, and be well again.
func TestFilterExpandsItself(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, 950)
	s := newStack(t, settings{backend: d.addr(), orders: 950, gate: leaky(t, "0.01", "capacity: 1000; expand: {at_fill: 1, by: 8}")})
	s.probe(http.MethodGet, 100_001, 1500)
	bedtest.Eventually(t, "it grows", func() bool { return s.number(`ordergate_filter_capacity{filter="orders"}`) == 8000 })
	// On a busy machine it grows before probe has asked for the last orders; those orders
	// pass at the new rate.
	bedtest.Eventually(t, "what was measured of the old one is forgotten", func() bool {
		rate := s.number(measuredMetric)
		return math.IsNaN(rate) || rate < 0.005
	})
	before := s.number(passedMetric)
	s.probe(http.MethodGet, 200_001, 1500)
	bedtest.Eventually(t, "it is well", func() bool { return s.number(measuredMetric) < 0.005 && s.number(alertMetric) == 0 })
	if passed := s.number(passedMetric) - before; passed > 8 { // of 1500, at 1 in 10,000
		t.Errorf("%g passed after it grew", passed)
	}
	s.probe(http.MethodGet, 1, 950)
	if n := d.missed("maybe") + d.missed("unknown"); float64(n) < s.number(passedMetric) {
		t.Errorf("%d answers of the backend, and more are counted", n)
	}
	for what, n := range map[string]int{"filter is expanded": 1, "filter has grown": 1, "as rarely as they should": 1} {
		if got := strings.Count(gateLog(t, s), what); got != n {
			t.Errorf("%d lines say %q, want %d", got, what, n)
		}
	}
}

// TestUnknownIsNoFalsePositive has Redis away: absent orders pass, and not because
// of the bits.
func TestUnknownIsNoFalsePositive(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, 990)
	s := newStack(t, settings{backend: d.addr(), orders: 990, gate: leaky(t, "0.15", "capacity: 1000")})
	s.server.Kill()
	probed := 0
	bedtest.Eventually(t, "the window is over", func() bool { // until then they are absent
		s.probe(http.MethodGet, 200_001+probed, 1)
		probed++
		return d.missed("unknown") > 0
	})
	probed += 600
	s.probe(http.MethodGet, 100_001, 600)
	passed, unknown := d.missed("maybe"), d.missed("unknown")
	if unknown < 400 {
		t.Fatalf("verdicts: %d maybe, %d unknown", passed, unknown)
	}
	bedtest.Eventually(t, "the rate is that of the bits", func() bool {
		return s.number(passedMetric) == float64(passed) && about(s.number(measuredMetric), float64(passed)/float64(probed), 0.1)
	})
	if s.number(alertMetric) != 0 {
		t.Error("there is an alert")
	}
	if n := s.number(probedMetric); !about(n, float64(probed), 0.02) {
		t.Errorf("%g IDs probed, want %d", n, probed)
	}
}

// answers is the filter of the example that shows answers, and reads what has reads
// skip ext_proc.
var (
	answers = regexp.MustCompile(`(?s)          # 3\. Answers.*?(          - name: envoy\.filters\.http\.router)`)
	reads   = regexp.MustCompile(`(?s)                typed_per_filter_config:\n.*?disabled: true\n`)
)

// without takes parts out of the example.
func without(t testing.TB, parts ...*regexp.Regexp) func(string) string {
	return func(yaml string) string {
		for _, part := range parts {
			if len(part.FindAllString(yaml, 2)) != 1 {
				t.Fatalf("the example does not have %v once", part)
			}
			yaml = part.ReplaceAllString(yaml, "$1")
		}
		return yaml
	}
}

// TestMeasuredByBracket sends reads through ext_proc, which then looks at their
// answers itself.
func TestMeasuredByBracket(t *testing.T) {
	needsSidecar(t, "the module sees each answer in any case")
	t.Parallel()
	d := newDatabase(t, 990)
	s := newStack(t, settings{
		backend: d.addr(), orders: 990, gate: leaky(t, "0", "capacity: 1000"),
		envoy: without(t, answers, reads),
	})
	s.probe(http.MethodGet, 1, 10)
	s.probe(http.MethodGet, 100_001, 600)
	bedtest.Eventually(t, "what passed is counted", func() bool {
		return d.missed("maybe") > 0 && s.number(passedMetric) == float64(d.missed("maybe"))
	})
	bedtest.Eventually(t, "the rate is known", func() bool {
		return about(s.number(measuredMetric), float64(d.missed("maybe"))/600, 0.1)
	})
}

// TestNotMeasured has Envoys that do not show answers: lookups go on as they do
// elsewhere.
func TestNotMeasured(t *testing.T) {
	needsSidecar(t, "the module sees each answer in any case")
	t.Parallel()
	for name, change := range map[string]func(*testing.T) func(string) string{
		"no filter": func(t *testing.T) func(string) string { return without(t, answers) },
		"response headers skipped": func(t *testing.T) func(string) string {
			return both(without(t, answers, reads), edit(t,
				"allow_mode_override: true", "allow_mode_override: false",
				"                response_header_mode: SEND\n", "                response_header_mode: SKIP\n",
				"                response_trailer_mode: SEND\n", "                response_trailer_mode: SKIP\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, 990)
			s := newStack(t, settings{
				backend: d.addr(), orders: 990, gate: leaky(t, "0", "capacity: 1000"), envoy: change(t),
			})
			s.must(http.MethodGet, "/orders/1", "").want(t, 200, "")
			s.probe(http.MethodGet, 100_001, 300)
			if d.missed("maybe") == 0 {
				t.Fatal("nothing passed")
			}
			refused := float64(300 - d.missed("maybe") - d.missed("")) // "": the verdict came too late
			bedtest.Eventually(t, "the lookups are counted", func() bool { return about(s.number(probedMetric), refused, 0.02) })
			if rate := s.number(measuredMetric); !math.IsNaN(rate) || s.number(passedMetric) != 0 {
				t.Errorf("measured %g, %g passed", rate, s.number(passedMetric))
			}
		})
	}
}

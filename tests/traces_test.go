package tests

import (
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// collector takes spans by OTLP over HTTP.
type collector struct {
	addr string

	mu    sync.Mutex
	spans []*tracepb.Span
	hang  chan struct{} // nil: spans are taken; closed at the end
}

func newCollector(t testing.TB) *collector {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &collector{addr: l.Addr().String()}
	server := &http.Server{Handler: http.HandlerFunc(c.take), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		c.hangs(false)
		must(t, server.Close())
		serving.Wait()
	})
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectorpb.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	hang := c.hang
	for _, from := range request.ResourceSpans {
		for _, scope := range from.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	c.mu.Unlock()
	if hang != nil {
		<-hang
	}
}

// hangs has the collector answer no more, or again.
func (c *collector) hangs(does bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hang != nil {
		close(c.hang)
	}
	if c.hang = nil; does {
		c.hang = make(chan struct{})
	}
}

// find returns the first span that is as wanted, nil if there is none.
func (c *collector) find(wanted func(*tracepb.Span) bool) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.spans, wanted); i >= 0 {
		return c.spans[i]
	}
	return nil
}

// parts returns the names of a span's children, in the order of their times.
func (c *collector) parts(of *tracepb.Span) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(c.spans), func(s *tracepb.Span) bool { return string(s.ParentSpanId) != string(of.SpanId) })
	slices.SortFunc(all, func(a, b *tracepb.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	for _, s := range all {
		if s.StartTimeUnixNano < of.StartTimeUnixNano || s.EndTimeUnixNano > of.EndTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano {
			names = append(names, "outside of its parent: ")
		}
		names = append(names, s.Name)
	}
	return names
}

// attributesOf returns those of a span.
func attributesOf(s *tracepb.Span) map[string]string {
	all := make(map[string]string)
	for _, kv := range s.Attributes {
		switch text := kv.Value.GetStringValue(); {
		case kv.Key == "ordergate.fence": // of each its own
		case text != "":
			all[kv.Key] = text
		default:
			all[kv.Key] = strings.TrimPrefix(kv.Value.String(), "int_value:")
		}
	}
	return all
}

// into has ordergate's variables name the collector.
func (c *collector) into() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.addr, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BSP_MAX_QUEUE_SIZE=64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=32"}
}

// tracingTo has Envoy's own tracer send to the collector.
func tracingTo(c *collector) func(string) string {
	_, port, _ := strings.Cut(c.addr, ":")
	return func(yaml string) string {
		yaml = bedtest.Replace(yaml, "http.max_requests_per_io_cycle: 1 }", "http.max_requests_per_io_cycle: 1, tracing.opentelemetry.flush_interval_ms: 50 }")
		yaml = bedtest.Replace(yaml, "\n  clusters:\n", `
  clusters:
  - name: collector
    type: STATIC
    load_assignment: { cluster_name: collector, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: `+port+` } } } }] }] }
`)
		return bedtest.Replace(yaml, "          stat_prefix: orders\n", `          stat_prefix: orders
          tracing:
            provider:
              name: envoy.tracers.opentelemetry
              typed_config:
                "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                service_name: envoy
                http_service: { http_uri: { uri: "http://`+c.addr+`/v1/traces", cluster: collector, timeout: 1s } }
`)
	}
}

// TestTraces continues the traces of clients, through Envoy's own tracer, into spans of each kind. Then
// the collector hangs: decisions do not, and neither does the end.
func TestTraces(t *testing.T) {
	t.Parallel()
	b, c := newBackend(t), newCollector(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, envoy: tracingTo(c), env: c.into(),
		gate: both(both(shortLease, withOnceAndConditions), logging(filepath.Join(t.TempDir(), "decisions.log"))),
	})
	const clientSpan = "b7ad6b7169203331"
	begun := 0
	// send sends a request in a trace of its own, whose ID it returns.
	send := func(method, path, verdict string, header ...string) string {
		t.Helper()
		begun++
		id := strings.Repeat("0", 30) + strconv.Itoa(10+begun)
		if a := s.must(method, path, "", append(header, "traceparent", "00-"+id+"-"+clientSpan+"-01")...); a.verdict != verdict {
			t.Errorf("%s %s: %d %q, want %q", method, path, a.status, a.verdict, verdict)
		}
		return id
	}
	// want waits for the span of a trace with a name, and looks at its ancestors.
	want := func(id, name string, attributes map[string]string, parts ...string) *tracepb.Span {
		t.Helper()
		var span, parent *tracepb.Span
		bedtest.Eventually(t, name, func() bool {
			span = c.find(func(s *tracepb.Span) bool { return hex.EncodeToString(s.TraceId) == id && s.Name == name })
			return span != nil && len(c.parts(span)) >= len(parts)
		})
		if diff := cmp.Diff(attributes, attributesOf(span)); diff != "" {
			t.Errorf("%s of %s (-want +got):\n%s", name, id, diff)
		}
		if got := c.parts(span); !slices.Equal(got, parts) {
			t.Errorf("%s has the parts %q, want %q", name, got, parts)
		}
		generations := 0
		for ; hex.EncodeToString(span.ParentSpanId) != clientSpan; span = parent { // beside Envoy, through its spans
			bedtest.Eventually(t, "the parent of "+span.Name, func() bool {
				parent = c.find(func(s *tracepb.Span) bool { return string(s.SpanId) == string(span.ParentSpanId) })
				return parent != nil
			})
			generations++
		}
		if want := map[bool]int{true: 0, false: 2}[*attachment == asModule]; generations != want {
			t.Errorf("%s: %d spans are between it and the client's, want %d", name, generations, want)
		}
		return c.find(func(s *tracepb.Span) bool { return hex.EncodeToString(s.TraceId) == id && s.Name == name })
	}
	is := func(rule, action, more string) map[string]string {
		all := map[string]string{"ordergate.rule": rule, "ordergate.action": action, "ordergate.observed": "bool_value:false"}
		for _, field := range strings.Fields(more) {
			name, value, _ := strings.Cut(field, "=")
			all[name] = value
		}
		return all
	}
	want(send("GET", "/orders/1", ""), "ordergate.check", is("order-lookup", "lookup", "ordergate.verdict=maybe ordergate.order=1"))
	want(send("GET", "/orders/77", "absent"), "ordergate.check", is("order-lookup", "lookup", "ordergate.verdict=absent ordergate.order=77 http.response.status_code=404"))
	const acquired = "ordergate.verdict=acquired ordergate.outcome=known http.response.status_code=200"
	want(send("POST", "/orders/1/settle", ""), "ordergate.settle", is("commission-settle", "settle", acquired+" ordergate.order=1"), "wait for lock", "forwarded", "release")
	s.redis.HSet(t.Context(), "order:lock:5", "another:1", 1)
	want(send("POST", "/orders/5/settle", "busy"), "ordergate.settle",
		is("commission-settle", "settle", "ordergate.verdict=busy ordergate.order=5 ordergate.outcome=not_forwarded http.response.status_code=409"), "wait for lock")
	want(send("POST", "/orders?do=create&id=4711", ""), "ordergate.learn", is("order-create", "create", "ordergate.order=4711"))
	first := send("POST", "/payments?do=answer&status=200&body=ok", "", "Idempotency-Key", "1")
	want(first, "ordergate.settle", is("payment", "once", acquired), "wait for lock", "forwarded", "release")
	again := want(send("POST", "/payments?do=answer&status=200&body=ok", "replayed", "Idempotency-Key", "1"), "ordergate.settle",
		is("payment", "once", "ordergate.verdict=replayed ordergate.outcome=not_forwarded http.response.status_code=200"), "wait for lock")
	if len(again.Links) != 1 || hex.EncodeToString(again.Links[0].TraceId) != first {
		t.Errorf("a replay links to %v, want the trace %s", again.Links, first)
	}

	c.hangs(true)
	for i := range 200 {
		s.must("GET", "/orders/"+strconv.Itoa(100+i), "").want(t, 404, "absent")
	}
	dropped, err := strconv.Atoi(s.metric("ordergate_spans_dropped_total"))
	if err != nil || dropped < 200-64 {
		t.Errorf("%d of 200 spans were dropped (%v), want all for which there is no room", dropped, err)
	}
	begin := time.Now()
	must(t, s.gate.Stop())
	if took := time.Since(begin); took > 7*time.Second { // the exporter would wait for 10
		t.Errorf("the end took %v", took)
	}
}

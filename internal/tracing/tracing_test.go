package tracing

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var opts = Options{Order: func(order string) string { return order }, Logger: slog.New(slog.DiscardHandler)}

// TestEnabled has the variables that switch traces on and off.
func TestEnabled(t *testing.T) {
	for variables, want := range map[string]bool{
		"": false, "OTEL_SERVICE_NAME=orders": false,
		"OTEL_TRACES_EXPORTER=otlp": true, "OTEL_TRACES_EXPORTER=console": true, "OTEL_TRACES_EXPORTER=none": false,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://a:4318": true, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://a:4318/v1/traces": true,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://a:4318 OTEL_TRACES_EXPORTER=none": false,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://a:4318 OTEL_SDK_DISABLED=true":    false,
	} {
		t.Run(variables, func(t *testing.T) {
			for _, v := range strings.Fields(variables) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			if got := Enabled(); got != want {
				t.Errorf("%t", got)
			}
		})
	}
}

// TestBadVariables has New name what it cannot use.
func TestBadVariables(t *testing.T) {
	for _, v := range []string{"OTEL_TRACES_EXPORTER=zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL=carrier-pigeon", "OTEL_RESOURCE_ATTRIBUTES=a", "OTEL_EXPORTER_OTLP_HEADERS=Authorization: Bearer hunter2", "OTEL_EXPORTER_OTLP_ENDPOINT=http://me:hunter2@a b"} {
		t.Run(v, func(t *testing.T) {
			name, value, _ := strings.Cut(v, "=")
			t.Setenv(name, value)
			if _, err := New(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "OTEL_") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestHangs has a collector that takes connections, and nothing else.
func TestHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
			t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1")
			tracer, err := New(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			for range 15 {
				tracer.Trace(&checked)
			}
			if n := tracer.Dropped(); n != 5 {
				t.Errorf("%d spans were dropped, want 5", n)
			}
			begin := time.Now()
			tracer.Close()
			if took := time.Since(begin); took > 9*time.Second { // the exporter would wait for 10
				t.Errorf("Close takes %v", took)
			}
		})
	}
}

var checked = gate.Trace{
	LoggedDecision: gate.LoggedDecision{Rule: "look", Action: gate.ActionLookup, Verdict: gate.VerdictAbsent, Order: "77", Status: 404, Offset: -1},
	TraceParent:    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	Span:           gate.Span{Name: gate.SpanCheck, Start: time.Now(), End: time.Now()},
}

// BenchmarkTrace is what a span costs the request that it is about, and one of a trace that is not sampled.
func BenchmarkTrace(b *testing.B) {
	b.Setenv("OTEL_TRACES_EXPORTER", "none")
	tracer, err := New(b.Context(), opts)
	if err != nil {
		b.Fatal(err)
	}
	defer tracer.Close()
	unsampled := checked
	unsampled.TraceParent = strings.TrimSuffix(checked.TraceParent, "1") + "0"
	for name, trace := range map[string]*gate.Trace{"sampled": &checked, "not sampled": &unsampled} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tracer.Trace(trace)
			}
		})
	}
}

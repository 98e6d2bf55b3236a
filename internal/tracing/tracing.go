// Package tracing sends what a gate does to OpenTelemetry, as the environment variables of
// OpenTelemetry's specification say. No decision waits for it: spans for which there is no room, or which
// a collector does not take, are dropped and counted.
//
// Start with [Enabled] and [New]. A [Tracer] is a gate.Tracer.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ordergate/ordergate/internal/gate"
)

// closeTime bounds the time for what is left at the end.
const closeTime = time.Second

// Enabled reports whether the environment asks for traces.
func Enabled() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch os.Getenv("OTEL_TRACES_EXPORTER") {
	case "none":
		return false
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	}
	return true
}

// Options describes the process whose spans are sent.
type Options struct {
	Version  string
	Instance string                    // names the process
	Order    func(order string) string // how an order is written; "": not at all
	Logger   *slog.Logger
}

// Tracer makes spans. It is safe for concurrent use.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
	order    func(string) string
}

// New begins to send. It does not wait for the collector. The error is about a variable.
func New(ctx context.Context, opts Options) (*Tracer, error) {
	var wrong complaint
	otel.SetLogger(logr.FromSlogHandler(&wrong))
	to, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces by the variables OTEL_*: %w", err)
	}
	if text := wrong.first.Load(); text != nil {
		_ = to.Shutdown(ctx) // it has sent nothing
		return nil, fmt.Errorf("traces by the variables OTEL_EXPORTER_OTLP_*: %s", *text)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName("ordergate"), semconv.ServiceVersion(opts.Version), semconv.ServiceInstanceID(opts.Instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces by the variables OTEL_*: %w", err)
	}
	t := &Tracer{exporter: newExporter(to, opts.Logger), order: opts.Order}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithSpanProcessor(t.exporter.processor()))
	t.tracer = t.provider.Tracer("github.com/ordergate/ordergate", trace.WithInstrumentationVersion(opts.Version))
	return t, nil
}

// complaint keeps the first error that OpenTelemetry logs, without the value of the variable, which may
// be a secret. It implements slog.Handler.
type complaint struct{ first atomic.Pointer[string] }

// Enabled implements slog.Handler.
func (c *complaint) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

// Handle implements slog.Handler.
func (c *complaint) Handle(_ context.Context, r slog.Record) error {
	c.first.CompareAndSwap(nil, &r.Message)
	return nil
}

// WithAttrs implements slog.Handler.
func (c *complaint) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements slog.Handler.
func (c *complaint) WithGroup(string) slog.Handler { return c }

// Dropped returns how many spans were dropped.
func (t *Tracer) Dropped() uint64 { return t.exporter.dropped.Load() }

// Close sends what is left, for a second at most. No span may follow.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what it drops does not matter any more
	t.exporter.close()
}

// Context implements gate.Tracer.
func (t *Tracer) Context(ctx context.Context, traceParent string) context.Context {
	if traceParent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, carrier(traceParent))
}

// carrier has a traceparent, and no tracestate.
type carrier string

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if key == "traceparent" {
		return string(c)
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return []string{"traceparent"} }

// Trace implements gate.Tracer.
func (t *Tracer) Trace(g *gate.Trace) {
	opts := []trace.SpanStartOption{trace.WithTimestamp(g.Start), trace.WithSpanKind(trace.SpanKindServer)}
	if g.Repeats != "" {
		if repeated := trace.SpanContextFromContext(t.Context(context.Background(), g.Repeats)); repeated.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: repeated}))
		}
	}
	ctx, span := t.tracer.Start(t.Context(context.Background(), g.TraceParent), g.Name, opts...)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(t.attributes(g)...)
	if g.Failed {
		span.SetStatus(codes.Error, "")
	}
	for _, part := range g.Parts {
		_, child := t.tracer.Start(ctx, part.Name, trace.WithTimestamp(part.Start))
		child.End(trace.WithTimestamp(part.End))
	}
	span.End(trace.WithTimestamp(g.End))
}

// attributes returns those of a span, which keep no memory of its request.
func (t *Tracer) attributes(g *gate.Trace) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 12)
	text := func(name, value string) {
		if value != "" {
			all = append(all, attribute.String("ordergate."+name, strings.Clone(value)))
		}
	}
	text("rule", g.Rule)
	if g.Rule != "" {
		text("action", g.Action.String())
		all = append(all, attribute.Bool("ordergate.observed", g.Observed))
	}
	if g.Name != gate.SpanLearn {
		text("verdict", g.Verdict.String())
	}
	text("reason", g.Reason)
	text("order", t.order(g.Order))
	text("fence", g.Fence)
	text("outcome", g.Outcome)
	if g.Status > 0 {
		all = append(all, semconv.HTTPResponseStatusCode(g.Status))
	}
	if g.Failed {
		kind := g.Verdict.String()
		if g.Name == gate.SpanLearn {
			kind = "not_learned"
		}
		all = append(all, semconv.ErrorTypeKey.String(kind))
	}
	return all
}

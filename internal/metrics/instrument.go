package metrics

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels prometheus.Labels, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

func (m *Metrics) counter(name, help string, labels prometheus.Labels, value func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(value()) }))
}

// lazyCounter appears in the output after its first Inc: most combinations of
// rule, action and verdict never occur.
type lazyCounter struct {
	prometheus.Counter
	once   sync.Once
	create func() prometheus.Counter
}

func lazily(v *prometheus.CounterVec, labels ...string) prometheus.Counter {
	return &lazyCounter{create: func() prometheus.Counter { return v.WithLabelValues(labels...) }}
}

// Inc implements prometheus.Counter.
func (c *lazyCounter) Inc() {
	c.once.Do(func() { c.Counter = c.create() })
	c.Counter.Inc()
}

// Lock counts the events of one configured lock. It is safe for concurrent use.
type Lock struct {
	acquired   *prometheus.CounterVec // by result
	wait, hold prometheus.Observer
	lost       prometheus.Counter
}

// Acquired counts an attempt to acquire a lock, with its result and the time that it took. The context may
// have a span.
func (l *Lock) Acquired(ctx context.Context, result string, waited time.Duration) {
	l.acquired.WithLabelValues(result).Inc()
	traceID := ""
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		traceID = span.TraceID().String()
	}
	observe(l.wait, waited, traceID)
}

// observe observes a time, with a trace as an exemplar if there is one.
func observe(o prometheus.Observer, took time.Duration, traceID string) {
	if traceID == "" {
		o.Observe(took.Seconds())
		return
	}
	o.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": strings.Clone(traceID)})
}

// Released records how long a lock was held.
func (l *Lock) Released(held time.Duration) { l.hold.Observe(held.Seconds()) }

// Lost counts a lease that ended before its release.
func (l *Lock) Lost() { l.lost.Inc() }

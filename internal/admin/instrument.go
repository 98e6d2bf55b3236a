package admin

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ordergate/ordergate/lockmw/redislock"
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

// lazyCounter appears in the output once it has counted: most combinations of
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

// lockObserver counts what happens to the locks of one name.
type lockObserver struct {
	result     map[redislock.Result]prometheus.Counter // read-only
	wait, hold prometheus.Observer
	lost       prometheus.Counter
}

// Acquired implements redislock.Observer.
func (o *lockObserver) Acquired(r redislock.Result, waited time.Duration) {
	o.result[r].Inc()
	o.wait.Observe(waited.Seconds())
}

// Released implements redislock.Observer.
func (o *lockObserver) Released(held time.Duration) { o.hold.Observe(held.Seconds()) }

// Lost implements redislock.Observer.
func (o *lockObserver) Lost() { o.lost.Inc() }

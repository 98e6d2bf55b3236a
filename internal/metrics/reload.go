package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reload is the result of reading the configuration again.
type Reload string

// The results.
const (
	Applied   Reload = "applied"
	Unchanged Reload = "unchanged" // it equals the active one
	Refused   Reload = "refused"   // it is bad, or needs a restart; the old one stays active
)

// reloads counts reloads by result.
type reloads struct {
	total         *prometheus.CounterVec
	success, last prometheus.Gauge
}

func (r *reloads) register(m *Metrics, loaded time.Time) {
	r.total = m.counters("ordergate_config_reload_total", "Times that the configuration was read again.", "result")
	for _, result := range []Reload{Applied, Unchanged, Refused} {
		r.total.WithLabelValues(string(result))
	}
	r.success = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ordergate_config_reload_success", Help: "1 while the configuration that was read last is in force, 0 while it was refused.",
	})
	r.last = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ordergate_config_last_reload_seconds", Help: "Unix time since when the configuration is in force.",
	})
	m.registry.MustRegister(r.success, r.last)
	r.success.Set(1)
	r.setActiveSince(loaded)
}

func (r *reloads) setActiveSince(at time.Time) { r.last.Set(float64(at.UnixMilli()) / 1e3) }

// Reloaded counts a reload of the configuration.
func (m *Metrics) Reloaded(result Reload, at time.Time) {
	m.reloads.total.WithLabelValues(string(result)).Inc()
	if result == Refused {
		m.reloads.success.Set(0)
		return
	}
	m.reloads.success.Set(1)
	if result == Applied {
		m.reloads.setActiveSince(at)
	}
}

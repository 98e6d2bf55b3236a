package engine

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/fprate"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/probes"
)

// measures holds the meter and the counter of probes of one filter.
type measures struct {
	meter  *fprate.Meter
	probes *probes.Counter
}

// measure creates a filter's measures and registers their metrics.
func (m *Engine) measure(name string, c config.Filter, f *filter.Filter) *measures {
	var client redis.UniversalClient
	// The embedded Redis uses its own hash for counting, and no other instance counts there.
	if m.redis != nil && m.config.Redis.Mode != config.RedisEmbedded {
		client = m.redis
	}
	s := &measures{
		meter: fprate.New(f, fprate.Options{
			Alert:  c.AlertFalsePositiveRate,
			Grow:   c.Expand != nil && c.Expand.How == config.ExpandRebuild,
			Logger: m.log.With("filter", name),
		}),
		probes: probes.New(client, name, probes.Options{Logger: m.log}),
	}
	m.metrics.MeasureGauges(name, metrics.Measures{
		PassedButMissing: s.meter.PassedButMissing, MeasuredRate: s.meter.Rate, EstimatedRate: s.meter.EstimatedRate,
		Alarmed: s.meter.Alarmed, ProbedIDs: s.probes.Today, ProbesDropped: s.probes.Dropped,
	})
	return s
}

// onAbsent counts an ID for which the filter answered Absent.
func (s *measures) onAbsent(id string) {
	s.meter.OnAbsent(id)
	s.probes.Add(id)
}

// onNotFound counts an ID for which the backend has no order.
func (s *measures) onNotFound(id string) {
	s.meter.OnNotFound(id)
	s.probes.Add(id)
}

// run runs the meter and the counter until ctx ends.
func (s *measures) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = s.meter.Run(ctx) })
	_ = s.probes.Run(ctx)
}

package source

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/internal/wait"
)

// pacer limits the load of a read on a server.
type pacer struct {
	pause time.Duration
	rate  int // rows a second, 0: no limit
	rows  int
	began time.Time
}

func newPacer(pause time.Duration, rate int) pacer { return pacer{pause: pause, rate: rate} }

// addRows counts rows.
func (p *pacer) addRows(rows int) { p.rows += rows }

// wait blocks until the next batch is due, or ctx ends.
func (p *pacer) wait(ctx context.Context) error {
	if p.began.IsZero() {
		p.began = time.Now()
		return nil
	}
	d := p.pause
	if p.rate > 0 {
		due := p.began.Add(time.Duration(float64(p.rows) / float64(p.rate) * float64(time.Second)))
		d = max(d, time.Until(due))
	}
	return wait.For(ctx, d)
}

package engine

import (
	"context"
	"slices"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/gate"
)

// Marks returns what judges the marks of `ordergate doctor` for one adapter.
func (m *Engine) Marks() *gate.Marks {
	seal, _ := m.Seal()
	return gate.NewMarks(seal, m.metrics.Mark)
}

// mark implements admin.Server.Mark: it makes a mark for a rule of the active configuration.
func (m *Engine) mark(ctx context.Context, stage gate.Stage, rule string, delay time.Duration) (*admin.MarkReport, error) {
	c := m.activeConfig()
	if rule != "" && !slices.ContainsFunc(c.Rules, func(r config.Rule) bool { return r.Name == rule }) {
		return nil, admin.ErrNoRule
	}
	seal, renew := m.Seal()
	renew(ctx) // the instances that judge it may have another key by now
	mark := gate.NewMark(stage, rule, delay)
	return &admin.MarkReport{Mark: seal.Sign(mark), Nonce: mark.Nonce, Time: mark.At.UTC()}, nil
}

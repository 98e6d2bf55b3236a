package loader

import (
	"context"
	"log/slog"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/source"
)

// NewConfirmer returns the Confirmer of a rule's dedup, which the rule must have. It does not
// connect yet. It takes the texts of the table for the same orders as the rule's filter does.
// Close it.
func NewConfirmer(c *config.Config, r *config.Rule, log *slog.Logger) (*source.Confirmer, error) {
	formats, err := rules.FormatsOf(c, r.Create.Filter)
	if err != nil {
		return nil, err
	}
	d := r.Create.Dedup
	return source.NewConfirmer(tableOptions(c.Sources[d.Confirm], nil), source.ConfirmerOptions{
		Timeout: d.Timeout, MaxQueries: d.MaxQueries, Same: rules.Same(formats), Logger: log,
	})
}

// CheckConfirmer returns why the table of a rule's dedup cannot be asked about single orders, or
// only by reading all of it.
func CheckConfirmer(ctx context.Context, c *config.Config, r *config.Rule) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	confirmer, err := NewConfirmer(c, r, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer confirmer.Close()
	return confirmer.Check(ctx)
}

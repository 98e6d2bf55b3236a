package loader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/internal/timeouts"
)

// verifyTimeout bounds the query for one refused order, and the wait for its connection.
const verifyTimeout = time.Second

// Tables looks refused orders up in the tables of a filter. It is for one caller at a time.
type Tables struct {
	log     *slog.Logger
	tables  []*verifiedTable
	options []source.TableOptions // of all tables; never changed
}

type verifiedTable struct {
	*source.Confirmer
	name    string
	checked bool // an index answers the query
}

// NewTables returns the tables of a filter: its sources, and those that confirm its creates. It
// does not connect yet. It has none for a filter with parts, whose IDs are not in one column. Close
// it.
func NewTables(c *config.Config, filter string, log *slog.Logger) (*Tables, error) {
	t := &Tables{log: log}
	if len(c.Filters[filter].Parts) > 0 {
		return t, nil
	}
	formats, err := rules.FormatsOf(c, filter)
	if err != nil {
		return nil, err
	}
	for _, name := range tablesOf(c, filter) {
		options := tableOptions(c.Sources[name], nil)
		t.options = append(t.options, options)
		confirmer, err := source.NewConfirmer(options, source.ConfirmerOptions{
			Timeout: verifyTimeout, MaxQueries: 1, Same: rules.Same(formats), Logger: log,
		})
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("source %s: %w", name, err)
		}
		t.tables = append(t.tables, &verifiedTable{Confirmer: confirmer, name: name})
	}
	return t, nil
}

// CheckVerify returns why refusals under a filter are not verified by one of its tables. It is nil
// if they are, or need not be.
func CheckVerify(ctx context.Context, c *config.Config, filter, name string) error {
	f := c.Filters[filter]
	if len(f.Parts) > 0 || f.VerifyOneIn() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	confirmer, err := source.NewConfirmer(tableOptions(c.Sources[name], nil), source.ConfirmerOptions{Timeout: verifyTimeout, MaxQueries: 1})
	if err != nil {
		return err
	}
	defer confirmer.Close()
	return confirmer.Check(ctx)
}

// tablesOf returns the tables among a filter's sources, and those that confirm its creates.
func tablesOf(c *config.Config, filter string) []string {
	names := slices.Clone(c.Filters[filter].Sources)
	for _, r := range c.Rules {
		if r.Create != nil && r.Create.Filter == filter && r.Create.Dedup != nil {
			names = append(names, r.Create.Dedup.Confirm)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !c.Sources[name].Live() })
	slices.Sort(names)
	return slices.Compact(names)
}

// KnownOrders returns the IDs of a few orders in the tables of a filter. It blocks for some seconds
// for each table that does not answer.
func KnownOrders(ctx context.Context, c *config.Config, filter string) (ids []string, err error) {
	formats, err := rules.FormatsOf(c, filter)
	if err != nil {
		return nil, err
	}
	check := rules.Check(formats)
	for _, name := range tablesOf(c, filter) {
		sample, err := SampleTable(ctx, name, c.Sources[name], c.Filters[filter].Parts)
		if err != nil {
			return nil, err
		}
		for _, row := range sample.Rows {
			if row.Reason == "" && check(row.ID) == "" {
				ids = append(ids, row.ID)
			}
		}
	}
	return ids, nil
}

// Any reports whether there is a table to ask.
func (t *Tables) Any() bool { return len(t.tables) > 0 }

// Find returns the table that has an order, "" if none has it. It blocks for a few seconds at most.
// It drops a table without an index for the query: each question would read all of it.
func (t *Tables) Find(ctx context.Context, id string) (table string, err error) {
	for _, table := range slices.Clone(t.tables) {
		if !table.checked {
			within, cancel := context.WithTimeout(ctx, checkTimeout)
			err := table.Check(within)
			cancel()
			if errors.Is(err, source.ErrNoIndex) {
				t.log.Warn("refusals are not verified by a table: no index finds an order by its ID", "source", table.name,
					runbook.Refusals.Do("create an index that begins with the ID column"))
				t.drop(table)
				continue
			}
			if err != nil {
				return "", err
			}
			table.checked = true
		}
		exists, err := table.Exists(ctx, id)
		if err != nil || exists {
			return table.name, err
		}
	}
	return "", nil
}

// Elsewhere looks up orders in other columns of the tables than that of the IDs. Found names a column
// that has at least half of them. Lacked means that no column has any. It may be called beside Find,
// and blocks until ctx ends at most.
func (t *Tables) Elsewhere(ctx context.Context, ids []string) (found string, lacked bool) {
	lacked = len(t.options) > 0
	for _, options := range t.options {
		table, err := source.NewTable(options)
		if err != nil {
			return "", false
		}
		f, err := table.Elsewhere(ctx, ids)
		if err == nil && 2*f.IDs >= len(ids) {
			return fmt.Sprintf("column %s of table %s has %d of %d such orders, and id_column is %s", f.Column, options.Table, f.IDs, len(ids), options.IDColumn), false
		}
		lacked = lacked && err == nil && f.Asked > 0 && f.IDs == 0
	}
	return "", lacked
}

func (t *Tables) drop(table *verifiedTable) {
	t.tables = slices.DeleteFunc(t.tables, func(other *verifiedTable) bool { return other == table })
	table.Close()
}

// Close disconnects from the tables.
func (t *Tables) Close() {
	for _, table := range t.tables {
		table.Close()
	}
}

// VerifyAfter returns the longest time until an order that was created past ordergate is in a
// filter, or the filter answers Unknown. An order that is absent for longer was lost.
func VerifyAfter(c *config.Config, filter string) time.Duration {
	after := max(recheckAfter, c.Filters[filter].StaleAfter) // a follower that hangs
	for _, name := range c.Filters[filter].Sources {
		if s := c.Sources[name]; s.Follow == config.FollowPoll {
			after = max(after, recheckAfter+2*s.Every)
		}
	}
	return after
}

// Disprove makes the filter unknown at every instance: it has refused an order that exists, for a
// reason in one line. The doubt stays until the filter has the order, after a reading of its
// sources. Without a change log it is this instance's alone.
func (l *Loader) Disprove(ctx context.Context, id, reason string) {
	d := changelog.Doubt{Kind: changelog.Lost, Reason: reason, Witness: id}
	if l.log != nil {
		ctx, cancel := context.WithTimeout(ctx, timeouts.Append)
		defer cancel()
		err := l.log.RecordDoubt(ctx, d)
		if err == nil {
			return // the log brings it here, too
		}
		l.logger.Warn("the other ordergates were not notified of an order that the filter lacks", "error", err,
			runbook.FilterNotReady.Do("look at Redis and the way to it"))
	}
	l.doubt(d)
}

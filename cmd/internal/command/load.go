package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/source"
)

func loadCommand(env *environment) *cobra.Command {
	var name, from, csv string
	var asJSON bool
	var by operator
	cmd := &cobra.Command{
		Use:   "load --filter NAME [--source NAME | --csv FILE]",
		Short: "Load a filter from its sources, or add the IDs of a file to it",
		Long: "Without --csv, the running ordergate reads the sources again, which clears the doubts\n" +
			"of the filter. If none runs, the command loads a filter that has a snapshot and writes\n" +
			"that snapshot, from which ordergate then starts.\n\n" +
			"With --csv, the IDs of a file, or of standard input (-), go into the change log: every\n" +
			"ordergate has them at once.",
		Example: "  ordergate load --filter orders\n  ordergate load --filter orders --csv ids.csv\n  mysql -N -e 'SELECT id FROM orders' | ordergate load --filter orders --csv -",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.loadPart(adminKeys...)
			if err != nil {
				return err
			}
			if err := by.check("load"); err != nil {
				return err
			}
			if err := loadable(c, env.file, name, from, csv); err != nil {
				return usageError{fmt.Errorf("load: %w", err)}
			}
			report, err := env.loadInto(cmd.Context(), c, name, from, csv, by.reason)
			if err != nil {
				return fmt.Errorf("load: %w", err)
			}
			if asJSON {
				return admin.WriteJSON(env.stdout, report)
			}
			return printLoad(report, env)
		},
	}
	cmd.Flags().StringVar(&name, "filter", "", "the filter to load")
	cmd.Flags().StringVar(&from, "source", "", "one of its sources; default all")
	cmd.Flags().StringVar(&csv, "csv", "", "a file with one ID a line, - for standard input")
	by.flag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}

func loadable(c *config.Config, file, name, from, csv string) error {
	f, ok := c.Filters[name]
	switch {
	case name == "":
		return errors.New("which filter? (--filter NAME)")
	case !ok:
		return fmt.Errorf("%s has no filter %q", file, name)
	case from != "" && csv != "":
		return errors.New("--source and --csv exclude each other")
	case from != "" && !slices.Contains(f.Sources, from):
		return fmt.Errorf("filters.%s in %s has no source %q", name, file, from)
	case csv == "" && len(f.Sources) == 0 && c.Redis == nil:
		return fmt.Errorf("filters.%s in %s has no sources (--csv FILE adds the IDs of a file)", name, file)
	}
	return nil
}

func printLoad(r *admin.LoadReport, env *environment) error {
	text := fmt.Sprintf("filter %s: %d IDs read in %v", r.Filter, r.IDs, r.Took-r.Waited)
	if r.Waited > 0 {
		text += fmt.Sprintf(", after a wait of %v for abandoned creates", r.Waited)
	}
	if r.Snapshot != nil {
		text += ", written to " + *r.Snapshot
	}
	if r.State != "" {
		text += "; it is " + r.State
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	_, err := fmt.Fprintln(env.stdout, text)
	return err
}

func (e *environment) loadInto(ctx context.Context, c *config.Config, name, from, csv, reason string) (*admin.LoadReport, error) {
	log := slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	if csv != "" {
		c, err := e.load()
		if err != nil {
			return nil, err
		}
		return e.loadFile(ctx, c, name, csv, reason, log)
	}
	report := &admin.LoadReport{}
	err := e.callAdmin(ctx, c, http.MethodPost, name, "/load?source="+from, nil, report)
	if err == nil || !errors.Is(err, errNotRunning) {
		return report, err
	}
	switch f := c.Filters[name]; {
	case f.Snapshot == nil:
		return nil, fmt.Errorf("%w, and without filters.%s.snapshot there is nothing else to load", err, name)
	case from != "" && len(f.Sources) > 1:
		return nil, fmt.Errorf("%w, and a snapshot of one source only would lack the others: leave out --source", err)
	}
	if c, err = e.load(); err != nil {
		return nil, err
	}
	return engine.LoadSnapshot(ctx, c, name, log)
}

// loadFile adds the IDs of a file to the change log. With an embedded Redis, or without
// Redis, it sends them to the running ordergate.
func (e *environment) loadFile(ctx context.Context, c *config.Config, name, path, reason string, log *slog.Logger) (*admin.LoadReport, error) {
	formats, err := rules.FormatsOf(c, name)
	if err != nil {
		return nil, err
	}
	add := func(ids []string) error {
		return e.callAdmin(ctx, c, http.MethodPost, name, "/ids", admin.IDsRequest{IDs: ids, Who: operatorName(), Reason: reason}, &admin.AddedReport{})
	}
	spread := func(context.Context) error { return nil } // the running ordergate waits for its peers
	trace := func(int64) error { return nil }            // the running ordergate logs the IDs
	if c.Redis != nil && c.Redis.Mode != config.RedisEmbedded {
		m, err := engine.New(ctx, c, versionText(), log)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		add = func(ids []string) error { return m.Announce(ctx, name, ids) }
		spread = func(ctx context.Context) error { return m.AwaitPeers(ctx, name) }
		trace = func(ids int64) error {
			return m.Audit(ctx, audit.Entry{Who: operatorName(), Action: audit.Loaded, Filter: name, IDs: int(ids), Reason: reason})
		}
	}
	began, next := time.Now(), make([]string, 0, loader.BatchSize)
	progress := source.NewProgress(os.Stderr, log, path)
	defer progress.Close()
	flush := func() error {
		err := add(next)
		next = next[:0]
		return err
	}
	opts := source.Options{Check: rules.Check(formats), Progress: progress.Report, Logger: log}
	report, err := source.CSV(path, opts).Read(ctx, func(id string) error {
		if next = append(next, id); len(next) < loader.BatchSize {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = spread(ctx)
	}
	if report.IDs > 0 {
		if failed := trace(report.IDs); failed != nil {
			fmt.Fprintln(e.stderr, "load: ordergate locks audit will not show this:", failed)
		}
	}
	if err == nil && report.Skipped > 0 {
		err = fmt.Errorf("%d lines of %s are no order IDs by any rule's format, the first is %s; the others are loaded", report.Skipped, path, report.First[0])
	}
	return &admin.LoadReport{Filter: name, IDs: report.IDs, Took: admin.SecondsOf(time.Since(began))}, err
}

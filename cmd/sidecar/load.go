package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/source"
)

// loadReport tells what was loaded.
type loadReport struct {
	Filter   string  `json:"filter"`
	IDs      int64   `json:"ids"` // read
	TookMS   int64   `json:"took_ms"`
	State    string  `json:"state"`
	Reason   string  `json:"reason"`
	Snapshot *string `json:"snapshot"` // that was written; null: none
}

func loadCommand(env *environment) *cobra.Command {
	var name, from, csv string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "load --filter NAME [--source NAME | --csv FILE]",
		Short: "Load a filter from its sources, or add the IDs of a file to it",
		Long: "Without --csv, the ordergate that runs reads the sources again, and whatever made it\n" +
			"doubt the filter is settled. If none runs, a filter with a snapshot is loaded here and\n" +
			"the snapshot written, which ordergate then starts from.\n\n" +
			"With --csv, the IDs of a file, or of standard input (-), go into the change log: every\n" +
			"ordergate has them at once.",
		Example: "  ordergate load --filter orders\n  ordergate load --filter orders --csv ids.csv\n  mysql -N -e 'SELECT id FROM orders' | ordergate load --filter orders --csv -",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.load()
			if err != nil {
				return err
			}
			if err := loadable(c, env.file, name, from, csv); err != nil {
				return usageError{fmt.Errorf("load: %w", err)}
			}
			report, err := env.loadInto(cmd.Context(), c, name, from, csv)
			if err != nil {
				return fmt.Errorf("load: %w", err)
			}
			if asJSON {
				return printJSON(env.stdout, report)
			}
			return report.print(env)
		},
	}
	cmd.Flags().StringVar(&name, "filter", "", "the filter to load")
	cmd.Flags().StringVar(&from, "source", "", "one of its sources; default all")
	cmd.Flags().StringVar(&csv, "csv", "", "a file with one ID a line, - for standard input")
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
	case csv == "" && len(f.Sources) == 0:
		return fmt.Errorf("filters.%s in %s has no sources (--csv FILE adds the IDs of a file)", name, file)
	}
	return nil
}

func (r *loadReport) print(env *environment) error {
	text := fmt.Sprintf("filter %s: %d IDs read in %v", r.Filter, r.IDs, time.Duration(r.TookMS)*time.Millisecond)
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

func (e *environment) loadInto(ctx context.Context, c *config.Config, name, from, csv string) (*loadReport, error) {
	log := slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	if csv != "" {
		return e.loadFile(ctx, c, name, csv, log)
	}
	report := &loadReport{}
	err := e.askRunning(ctx, c, http.MethodPost, name, "/load?source="+from, nil, report)
	if err == nil || !errors.Is(err, errNotRunning) {
		return report, err
	}
	switch f := c.Filters[name]; {
	case f.Snapshot == nil:
		return nil, fmt.Errorf("%w, and without filters.%s.snapshot there is nothing else to load", err, name)
	case from != "" && len(f.Sources) > 1:
		return nil, fmt.Errorf("%w, and a snapshot of one source only would lack the others: leave out --source", err)
	}
	return loadSnapshot(ctx, c, name, log)
}

// loadFile adds the IDs of a file by the change log, or, where that is within the
// process, by the ordergate that runs.
func (e *environment) loadFile(ctx context.Context, c *config.Config, name, path string, log *slog.Logger) (*loadReport, error) {
	formats, err := formatsOf(c, name)
	if err != nil {
		return nil, err
	}
	add := func(ids []string) error {
		return e.askRunning(ctx, c, http.MethodPost, name, "/ids", idsRequest{ids}, &addedReport{})
	}
	if c.Redis != nil && c.Redis.Mode != config.RedisEmbedded {
		m, err := assemble(ctx, c, log)
		if err != nil {
			return nil, err
		}
		defer m.close()
		add = func(ids []string) error { return m.filters[name].announce(ctx, ids) }
	}
	began, next := time.Now(), make([]string, 0, addedAtOnce)
	progress := source.NewProgress(os.Stderr, log, path)
	defer progress.Close()
	flush := func() error {
		err := add(next)
		next = next[:0]
		return err
	}
	opts := source.Options{Valid: valid(formats), Progress: progress.Report, Logger: log}
	report, err := source.CSV(path, opts).Read(ctx, func(id string) error {
		return spell(formats, id, func(id string) error {
			if next = append(next, id); len(next) < addedAtOnce {
				return nil
			}
			return flush()
		})
	})
	if err == nil {
		err = flush()
	}
	if err == nil && report.Skipped > 0 {
		err = fmt.Errorf("%d lines of %s are no order IDs by any rule's format, the first is %s; the others are loaded", report.Skipped, path, report.First[0])
	}
	return &loadReport{Filter: name, IDs: report.IDs, TookMS: time.Since(began).Milliseconds()}, err
}

// announce tells every ordergate of IDs.
func (u *filterUnit) announce(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if err := u.log.Record(ctx, ids...); err != nil || u.shared == nil {
		return err
	}
	return u.shared.Add(ctx, ids...)
}

// loadSnapshot loads a filter in this process, and writes its snapshot.
func loadSnapshot(ctx context.Context, c *config.Config, name string, log *slog.Logger) (*loadReport, error) {
	if c.Redis != nil {
		// Another place than that of the ordergate which is to start from it.
		c.Redis.Member = "load " + strconv.Itoa(os.Getpid())
	}
	m, err := assemble(ctx, c, log)
	if err != nil {
		return nil, err
	}
	defer m.close()
	began := time.Now()
	unit := m.filters[name]
	following, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if unit.log != nil {
			_ = unit.log.Run(following)
		}
	}()
	defer func() { cancel(); <-done }()
	unit.acquaint(ctx)
	unit.snapshots.loads()
	if err := unit.filter.Load(ctx, unit.sources...); err != nil {
		return nil, err
	}
	if unit.log != nil {
		if err := unit.log.Wait(ctx); err != nil {
			return nil, err
		}
	}
	info, err := unit.snapshots.now(ctx)
	if err != nil {
		return nil, err
	}
	return &loadReport{Filter: name, IDs: int64(info.IDs), TookMS: time.Since(began).Milliseconds(), Snapshot: &info.Path}, nil
}

// serveLoad reads sources again, for an operator who says that they are up to date.
func (m *machine) serveLoad(r *http.Request, name string) (any, error) {
	unit, began, from := m.filters[name], time.Now(), r.URL.Query().Get("source")
	var read int64
	err := unit.filter.Reload(r.Context(), func(ctx context.Context, add func(id string) error) error {
		into, flush := unit.readInto(ctx, m.config.Filters[name], add)
		counted := func(id string) error { read++; return into(id) }
		for i, s := range unit.sources {
			if from != "" && m.config.Filters[name].Sources[i] != from {
				continue
			}
			if err := s.IDs(ctx, counted); err != nil {
				return err
			}
		}
		return flush()
	})
	if err != nil {
		return nil, err
	}
	report := &loadReport{Filter: name, IDs: read, TookMS: time.Since(began).Milliseconds()}
	report.State, report.Reason = unit.filter.State()
	return report, nil
}

// readInto returns what adds IDs of sources: to memory and, by add, to the set in Redis,
// or to that alone, where memory is for what comes by the change log.
func (u *filterUnit) readInto(ctx context.Context, c config.Filter, add func(string) error) (into func(string) error, flush func() error) {
	if u.shared == nil || c.Kind == config.FilterLayered {
		return add, func() error { return nil }
	}
	batch := make([]string, 0, addedAtOnce)
	flush = func() error {
		if len(batch) == 0 {
			return nil
		}
		err := u.shared.Add(ctx, batch...)
		batch = batch[:0]
		return err
	}
	return func(id string) error {
		if batch = append(batch, strings.Clone(id)); len(batch) < addedAtOnce {
			return nil
		}
		return flush()
	}, flush
}

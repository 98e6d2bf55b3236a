package command

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/accesslog"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/loader"
)

// replayOptions are the flags of replay.
type replayOptions struct {
	format  string
	host    string
	sources bool
	csv     string
	json    bool
}

func replayCommand(env *environment) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Show what ordergate would have done with the requests of an access log",
		Long: "Show what ordergate would have done with the requests of an access log.\n\n" +
			"It reads Envoy's default access log and JSON, combined logs of nginx and Apache, and HAR\n" +
			"files, also compressed by gzip; - is standard input. It runs each request through the rules\n" +
			"of the file, as if all of them were enforced, and asks neither Redis nor the backend.\n\n" +
			"Which orders exist: without --sources and --csv, the backend's answers in the log show it.\n" +
			"A lookup that the backend answered with 404 or 410 counts as refused, unless another answer\n" +
			"in the log shows its order.",
		Example: "  ordergate replay access.log access.log.1.gz\n  ordergate replay --sources access.log\n  kubectl logs deploy/envoy | ordergate replay -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("replay: which log? (a file, or - for standard input)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.loadReplay(&o)
			if err != nil {
				return err
			}
			report, err := replay(cmd.Context(), env, c, args, cmd.InOrStdin(), o)
			if err != nil {
				return err
			}
			if o.json {
				err = admin.WriteJSON(env.stdout, report)
			} else {
				err = report.print(env.stdout)
			}
			if err == nil {
				err = report.incomplete()
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.format, "format", "", "envoy, json, nginx, apache or har; default by the lines")
	cmd.Flags().StringVar(&o.host, "host", "", "the host of requests whose log shows none, for rules with match.host")
	cmd.Flags().BoolVar(&o.sources, "sources", false, "read which orders exist from the sources of the file")
	cmd.Flags().StringVar(&o.csv, "csv", "", "a file with the IDs of all orders, one a line; of several filters FILTER=FILE")
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

// loadReplay reads the configuration, of which replay uses no section that needs a server, except for
// --sources.
func (e *environment) loadReplay(o *replayOptions) (*config.Config, error) {
	switch {
	case o.sources && o.csv != "":
		return nil, usageError{errors.New("replay: --sources and --csv exclude each other")}
	case o.host != "" && strings.ContainsAny(o.host, "/ "):
		return nil, usageError{fmt.Errorf("replay: --host: %q is not the name of a host, such as shop.example.com", o.host)}
	case o.format != "" && !slices.Contains(accesslog.Formats, accesslog.Format(o.format)):
		return nil, usageError{fmt.Errorf("replay: --format: %q is not one of envoy, json, nginx, apache, har", o.format)}
	}
	uses := []string{"answer", "backend", "front_controllers", "locks", "rules", "filters"}
	if o.sources {
		uses = append(uses, "sources")
	}
	c, _, err := engine.LoadConfigWith(e.file, config.Options{Getenv: e.getenv, Uses: uses, WithoutDSN: !o.sources})
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// replay reads the logs and returns what ordergate would have done.
func replay(ctx context.Context, env *environment, c *config.Config, paths []string, stdin io.Reader, o replayOptions) (*replayReport, error) {
	sets, err := replayFilters(ctx, env, c, o)
	if err != nil {
		return nil, err
	}
	r, err := newReplayer(c, sets, o.host)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", env.file, err)}
	}
	switch {
	case sets != nil:
		r.report.Orders = "the sources of " + env.file
		if o.csv != "" {
			r.report.Orders = "the file " + o.csv
		}
	case rereadable(paths):
		r.report.Orders = "the backend's answers in the log: 404 and 410 mean that there is no such order, unless another answer shows it"
		if err := eachEntry(ctx, paths, stdin, o.format, r.note, nil); err != nil {
			return nil, usageError{fmt.Errorf("replay: %w", err)}
		}
	default:
		r.report.Orders = "the backend's answers in the log, which can be read only once: 404 and 410 mean that there is no such order, unless an earlier answer shows it"
		r.once = true
	}
	err = eachEntry(ctx, paths, stdin, o.format, r.judge, func(log *accesslog.Reader) { r.report.addLog(log.Name(), log.Counts()) })
	if err != nil {
		return nil, usageError{fmt.Errorf("replay: %w", err)}
	}
	return r.finish(ctx)
}

// rereadable reports whether all logs can be read twice.
func rereadable(paths []string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return path == "-" || err == nil && !info.Mode().IsRegular()
	})
}

// replayFilters loads the filters that rules look up or create in; nil: the log shows which orders
// exist.
func replayFilters(ctx context.Context, env *environment, c *config.Config, o replayOptions) (map[string]*filter.Filter, error) {
	if !o.sources && o.csv == "" {
		return nil, nil
	}
	used := make(map[string]bool)
	for i := range c.Rules {
		if l := c.Rules[i].Lookup; l != nil {
			used[l.Filter] = true
		}
	}
	only, path, named := strings.Cut(o.csv, "=")
	switch {
	case o.csv == "":
		only = ""
	case named && !used[only]:
		return nil, usageError{fmt.Errorf("replay: --csv: no rule of %s looks up in a filter %q", env.file, only)}
	case !named:
		if only, path = "", o.csv; len(used) > 1 {
			return nil, usageError{fmt.Errorf("replay: --csv: rules look up in several filters: name one, as in %s=%s", slices.Min(slices.Collect(maps.Keys(used))), o.csv)}
		}
	}
	log := slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: slog.LevelError})) // the error says it
	sets := make(map[string]*filter.Filter)
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if only != "" && name != only {
			continue
		}
		set, err := loader.Offline(ctx, c, name, path, log)
		if err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		sets[name] = set
	}
	return sets, nil
}

// eachEntry calls do with each request of the logs, in the order of their times: logs of several
// servers are merged. It calls done with each log at its end.
func eachEntry(ctx context.Context, paths []string, stdin io.Reader, format string, do func(log string, e *accesslog.Entry), done func(*accesslog.Reader)) error {
	var logs openLogs
	defer logs.close()
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			return fmt.Errorf("%s is there twice", nameOfLog(path))
		}
		l := &openLog{path: path}
		in := stdin
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			in, l.file = f, f
		}
		logs = append(logs, l)
		var err error
		if l.reader, err = accesslog.Open(nameOfLog(path), in, accesslog.Format(format)); err != nil {
			return err
		}
		if l.next, err = l.reader.Next(); err != nil {
			return err
		}
	}
	heap.Init(&logs)
	for n := 0; len(logs) > 0; n++ {
		if n%1000 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l := logs[0]
		do(l.path, l.next)
		next, err := l.reader.Next()
		switch {
		case err == nil:
			l.next = next
			if len(logs) > 1 {
				heap.Fix(&logs, 0)
			}
			continue
		case !errors.Is(err, io.EOF):
			return err
		}
		if done != nil {
			done(l.reader)
		}
		heap.Pop(&logs).(*openLog).close()
	}
	return nil
}

func nameOfLog(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// openLog is a log and its next request.
type openLog struct {
	path   string
	file   *os.File // nil: standard input
	reader *accesslog.Reader
	next   *accesslog.Entry
}

func (l *openLog) close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}

// openLogs is a heap: the log with the earliest request is first.
type openLogs []*openLog

func (l openLogs) Len() int           { return len(l) }
func (l openLogs) Less(i, j int) bool { return l[i].next.Start.Before(l[j].next.Start) }
func (l openLogs) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *openLogs) Push(x any)        { *l = append(*l, x.(*openLog)) }
func (l *openLogs) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

func (l openLogs) close() {
	for _, log := range l {
		log.close()
	}
}

package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/order"
)

func filterInfoCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:     "info [NAME]...",
		Short:   "Show the filters of the running ordergate",
		Example: "  ordergate filter info orders",
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := env.loadPart(adminKeys...)
			if err != nil {
				return err
			}
			if len(names) == 0 {
				names = slices.Sorted(maps.Keys(c.Filters))
			}
			reports := []admin.FilterReport{}
			for _, name := range names {
				var r admin.FilterReport
				if err := env.callAdmin(cmd.Context(), c, http.MethodGet, name, "", nil, &r); err != nil {
					return fmt.Errorf("filter info: %w", err)
				}
				reports = append(reports, r)
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, map[string]any{"filters": reports})
			}
			for i, r := range reports {
				if i > 0 {
					fmt.Fprintln(env.stdout)
				}
				if err := printFilter(env.stdout, &r); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func printFilter(w io.Writer, r *admin.FilterReport) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s%s\n", name, fmt.Sprintf(format, args...))
	}
	line("filter", "%s (%s)", r.Filter, r.Kind)
	state := r.State
	if r.Reason != "" {
		state += ": " + r.Reason
	}
	line("state", "%s", state)
	line("ids", "%d of %d", r.IDs, r.Capacity)
	line("fill", "%.1f%% of the bits", 100*r.FillRatio)
	line("passes", "%s of the absent IDs, estimated", admin.Percent(r.Rate))
	if r.Measured != nil {
		line("", "%s, measured", admin.Percent(*r.Measured))
	}
	line("memory", "%s", admin.SizeText(r.MemoryBytes))
	if r.RedisBytes != nil {
		line("in redis", "%s", admin.SizeText(*r.RedisBytes))
	}
	if r.Log != nil {
		line("change log", "%s", logText(r.Log, time.Now()))
	}
	if r.Pending > 0 {
		line("pending", "%d IDs that the other ordergates do not have yet", r.Pending)
	}
	line("generation", "%s", expansionText(&r.Expansion))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(r.Segments)+len(r.Redis) > 1 {
		fmt.Fprintln(table, "\nPART\tIDS\tCAPACITY\tFILL\tPASSES\tBYTES")
		for _, s := range r.Segments {
			fmt.Fprintf(table, "%s\t%d\t%d\t%.1f%%\t%s\t%s\n", s.Name, s.IDs, s.Capacity, 100*s.FillRatio, admin.Percent(s.FalsePositiveRate), admin.SizeText(s.Bytes))
		}
		for _, s := range r.Redis {
			fmt.Fprintf(table, "%s in Redis\t%d\t%d\t%.1f%%\t%s\t%s\n", s.Key, s.IDs, s.Capacity, 100*s.FillRatio, admin.Percent(s.Rate), admin.SizeText(s.Bytes))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func expansionText(e *admin.ExpansionReport) string {
	text := fmt.Sprint(e.Generation)
	switch {
	case e.Running:
		text += fmt.Sprintf(", growing from %d to %d: %d IDs read", e.From, e.To, e.Read)
		if e.Began != nil {
			text += fmt.Sprintf(" in %v", time.Since(*e.Began).Round(time.Second))
		}
	case e.Error != nil:
		text += ", did not grow: " + *e.Error
	case e.Took != nil:
		text += fmt.Sprintf(", grown from %d to %d in %v", e.From, e.To, *e.Took)
	}
	return text
}

func filterContainsCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:     "contains NAME [PART/]ORDER-ID",
		Short:   "Ask the running ordergate whether an order may exist",
		Example: "  ordergate filter contains orders 42\n  ordergate filter contains tenants acme/42",
		Args:    filterArguments(2, 2, "a filter and an order ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.loadPart(adminKeys...)
			if err != nil {
				return err
			}
			if err := checkParts(c, args[0], args[1]); err != nil {
				return usageError{fmt.Errorf("filter contains: %w", err)}
			}
			var r admin.ContainsReport
			err = env.callAdmin(cmd.Context(), c, http.MethodGet, args[0], "/contains?id="+url.QueryEscape(args[1]), nil, &r)
			if err != nil {
				return fmt.Errorf("filter contains: %w", err)
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, r)
			}
			_, err = fmt.Fprintln(env.stdout, strings.TrimSuffix(r.Answer+": "+r.Reason, ": "))
			return err
		},
	}
}

// checkParts returns an error for an ID without the parts of the filter's IDs: the filter
// would answer that there is no such order.
func checkParts(c *config.Config, filter, id string) error {
	parts := c.Filters[filter].Parts
	if len(parts) == 0 || strings.Count(id, order.Separator) == len(parts) {
		return nil
	}
	return fmt.Errorf("the IDs of filter %s have parts: want %s/ORDER-ID", filter, strings.ToUpper(strings.Join(parts, order.Separator)))
}

// filterArguments accepts least to most arguments, none of them empty. It refuses more,
// because the user would take an ignored argument for processed.
func filterArguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most || slices.Contains(args, "") {
			return usageError{fmt.Errorf("%s: want %s, got %d arguments", cmd.CommandPath(), what, len(args))}
		}
		return nil
	}
}

func filterAddCommand(env *environment, asJSON *bool) *cobra.Command {
	var by operator
	cmd := &cobra.Command{
		Use:   "add NAME ORDER-ID...|-",
		Short: "Add order IDs to the filters of all ordergates, as arguments or one a line on standard input",
		Long: "Add order IDs to the filters of all ordergates, as arguments or one a line on standard input. They go through\n" +
			"the change log as those of new orders do. The filter converts them to the forms that its rules\n" +
			"ask for. IDs that no rule takes are not added, and the command fails.",
		Example: "  ordergate filter add orders 42 43\n  ordergate filter add orders - < ids.csv",
		Args:    filterArguments(2, math.MaxInt, "a filter and an order ID, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.loadPart(adminKeys...)
			if err != nil {
				return err
			}
			if err := by.check("filter add"); err != nil {
				return err
			}
			total := admin.AddedReport{Filter: args[0]}
			add := func(ids []string) error {
				var r admin.AddedReport
				err := env.callAdmin(cmd.Context(), c, http.MethodPost, args[0], "/ids", admin.IDsRequest{IDs: ids, Who: operatorName(), Reason: by.reason}, &r)
				if err != nil && total.Added > 0 {
					err = fmt.Errorf("behind the first %d IDs: %w", total.Added, err)
				}
				total.Added += r.Added
				total.Refused += r.Refused
				if total.FirstRefused == nil {
					total.FirstRefused = r.FirstRefused
				}
				return err
			}
			if args[1] == "-" {
				err = eachBatch(cmd.InOrStdin(), add)
			} else {
				err = add(args[1:])
			}
			if err != nil {
				return fmt.Errorf("filter add: %w", err)
			}
			if *asJSON {
				err = admin.WriteJSON(env.stdout, total)
			} else {
				_, err = fmt.Fprintf(env.stdout, "added %d\n", total.Added)
			}
			if err == nil && total.Refused > 0 {
				err = fmt.Errorf("filter add: no rule takes %d of the IDs, which were not added; the first is %q", total.Refused, *total.FirstRefused)
			}
			return err
		},
	}
	by.flag(cmd)
	return cmd
}

// addBatch is the number of IDs in one request. The server appends them to the change log
// in steps of loader.BatchSize.
const addBatch = 1_000

// eachBatch reads one ID per line and calls do for each batch. It skips empty lines.
func eachBatch(from io.Reader, do func([]string) error) error {
	lines := bufio.NewScanner(from)
	var ids []string
	for lines.Scan() {
		id := strings.TrimSpace(lines.Text())
		if id == "" {
			continue
		}
		if ids = append(ids, id); len(ids) == addBatch {
			if err := do(ids); err != nil {
				return err
			}
			ids = ids[:0]
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading standard input: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	return do(ids)
}

func filterExpandCommand(env *environment, asJSON *bool) *cobra.Command {
	return filterAction(env, asJSON, "expand", "Make a filter larger now, and wait for it",
		"grown: %d IDs of %d\n", func() any { return nil })
}

func filterTrustCommand(env *environment, asJSON *bool) *cobra.Command {
	var known []string
	cmd := filterAction(env, asJSON, "trust", "Declare that a filter in Redis which others fill has every order",
		"trusted: %d IDs of %d\n", func() any { return admin.TrustRequest{Known: known} })
	cmd.Long = cmd.Short + ".\nFrom then on orders count as absent. If one is missing in it, its customer gets a 404.\n" +
		"It is tried with orders that exist: those of --known, and a few of the tables that confirm its creates."
	cmd.Example = "  ordergate filter trust orders --yes --known 1001,1002"
	yes := cmd.Flags().Bool("yes", false, "yes, every order is in it")
	cmd.Flags().StringSliceVar(&known, "known", nil, "IDs of orders that exist")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*yes {
			return usageError{errors.New("filter trust: add --yes if every order is in it: a missing order counts as absent")}
		}
		return run(cmd, args)
	}
	return cmd
}

// filterAction returns a command that posts an action on a filter to the running ordergate. The
// body is nil: there is none.
func filterAction(env *environment, asJSON *bool, name, short, done string, body func() any) *cobra.Command {
	return &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Example: "  ordergate filter " + name + " orders",
		Args:    oneArgument("filter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.loadPart(adminKeys...)
			if err != nil {
				return err
			}
			var r admin.FilterReport
			if err := env.callAdmin(cmd.Context(), c, http.MethodPost, args[0], "/"+name, body(), &r); err != nil {
				return fmt.Errorf("filter %s: %w", name, err)
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, r)
			}
			_, err = fmt.Fprintf(env.stdout, done, r.IDs, r.Capacity)
			return err
		},
	}
}

// logText describes the phase and position of the change log, and counts its doubts.
func logText(r *admin.LogReport, now time.Time) string {
	text := fmt.Sprintf("%s, at %d of %d", r.Phase, r.Position, r.Tail)
	if r.LastRead != nil {
		text += fmt.Sprintf(", read %v ago in %.1f ms", now.Sub(*r.LastRead).Round(100*time.Millisecond), 1e3*time.Duration(r.ReadTook).Seconds())
	}
	for _, d := range []struct {
		kind  string
		count uint64
	}{{"term", r.Doubts.Failover}, {"crash", r.Doubts.Crash}, {"lost", r.Doubts.Lost}, {"gap", r.Doubts.Gap}, {"running", r.Doubts.Running}} {
		if d.count > 0 {
			text += fmt.Sprintf(", %s %d", d.kind, d.count)
		}
	}
	return text
}

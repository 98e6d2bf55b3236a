package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/lockreport"
)

func locksAuditCommand(env *environment, asJSON *bool) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show which locks were released by force, by whom and why, the newest first",
		Long: "Show which locks were released by force, by whom and why, the newest first, which stored\n" +
			"answers were forgotten, which latches got another count, and which files of IDs were loaded by\n" +
			"ordergate load --csv. Redis keeps the last thousand or so.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usageError{errors.New("locks audit: --limit is negative: give how many entries to show, or 0 for all")}
			}
			locks, err := env.openLocks()
			if err != nil {
				return err
			}
			defer locks.Close()
			entries, err := locks.audit(cmd.Context(), limit, env.stderr)
			if err != nil {
				return err
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, auditReport{entries})
			}
			return printAudit(env.stdout, entries)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", defaultLimit, "how many to show at most, 0 for all")
	return cmd
}

// auditReport is what locks audit prints as JSON.
type auditReport struct {
	Entries []auditEntry `json:"entries"`
}

// auditEntry is one action of an operator. A key without a value is null. Bytes outside
// visible ASCII are written \xNN.
type auditEntry struct {
	At      time.Time `json:"at"` // by the clock of Redis
	Who     string    `json:"who"`
	Did     string    `json:"did"` // released, loaded, forgot, set
	Lock    *string   `json:"lock"`
	Key     *string   `json:"key"`
	Holder  *string   `json:"holder"`
	Request *string   `json:"request"`
	Filter  *string   `json:"filter"`
	IDs     *int      `json:"ids"`
	Count   *int64    `json:"count"` // of a latch that was set
	Reason  *string   `json:"reason"`
	Servers int       `json:"servers"` // number of servers of a quorum that have the entry; otherwise 1

	run string
}

func newAuditEntry(e audit.Entry) auditEntry {
	shown := func(text string) *string { return nilIf("", visible(text)) }
	entry := auditEntry{
		At: e.At, Who: visible(e.Who), Did: visible(e.Action), Lock: shown(e.Lock), Key: shown(e.Key), Holder: shown(e.Holder),
		Request: shown(e.Request), Filter: shown(e.Filter), IDs: nilIf(0, e.IDs), Reason: shown(e.Reason), Servers: 1, run: e.Run,
	}
	if e.Action == audit.LatchSet {
		entry.Count = new(e.Count)
	}
	return entry
}

// audit reads the entries of all servers that store locks, the newest first. It fails if no
// server answers. If some answer, it prints the errors of the others to unreachable.
func (d *lockClient) audit(ctx context.Context, limit int, unreachable io.Writer) ([]auditEntry, error) {
	servers, err := d.allServers(ctx)
	if err != nil {
		return nil, err
	}
	all, at := []auditEntry{}, make(map[string]int) // index by run
	var failures []error
	for _, server := range servers {
		entries, err := audit.Read(ctx, server.Client, limit)
		if err != nil {
			failures = append(failures, fmt.Errorf("locks audit: %w%s", err, server.OnServer()))
			continue
		}
		for _, e := range entries {
			if i, known := at[e.Run]; known && e.Run != "" {
				all[i].Servers++
				continue
			}
			at[e.Run] = len(all)
			all = append(all, newAuditEntry(e))
		}
	}
	if len(failures) == len(servers) {
		return nil, failures[0]
	}
	for _, err := range failures {
		fmt.Fprintln(unreachable, err)
	}
	slices.SortStableFunc(all, func(a, b auditEntry) int { return b.At.Compare(a.At) })
	if limit > 0 && len(all) > limit {
		all = all[:limit]
	}
	return all, nil
}

// allServers returns the servers of all locks, each once.
func (d *lockClient) allServers(ctx context.Context) (all []lockreport.Server, err error) {
	seen := make(map[string]bool) // by address; "" is the server of the section redis
	for _, name := range slices.Sorted(maps.Keys(d.Config.Locks)) {
		lock := d.Config.Locks[name]
		if lock.Kind != config.LockQuorum && seen[""] {
			continue
		}
		servers, err := d.Servers(ctx, lock)
		if err != nil {
			return nil, err
		}
		for _, s := range servers {
			address := ""
			if s.Address != nil {
				address = *s.Address
			}
			if !seen[address] {
				seen[address] = true
				all = append(all, s)
			}
		}
	}
	return all, nil
}

func printAudit(w io.Writer, entries []auditEntry) error {
	if len(entries) == 0 {
		_, err := fmt.Fprintln(w, "nothing was done by hand")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tWHO\tDID\tWHAT\tHOLDER\tREQUEST\tREASON")
	for _, d := range entries {
		fmt.Fprintln(table, strings.Join(d.row(), "\t"))
	}
	return table.Flush()
}

// row returns the cells of a line of the table.
func (d *auditEntry) row() []string {
	cell := func(text *string) string {
		if text == nil {
			return "-"
		}
		return *text
	}
	what, request := cell(d.Key), cell(d.Request)
	if d.Lock != nil {
		what += " (" + *d.Lock + ")"
	}
	if d.Filter != nil {
		what = "filter " + *d.Filter
	}
	if d.Count != nil {
		what += fmt.Sprintf(" (latch, count %d)", *d.Count)
	}
	if d.IDs != nil {
		request = fmt.Sprintf("%d IDs", *d.IDs)
	}
	return []string{d.At.Format(time.RFC3339), cmp.Or(d.Who, "-"), cmp.Or(d.Did, "-"), what, cell(d.Holder), request, cell(d.Reason)}
}

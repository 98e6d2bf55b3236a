package command

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/ordergate/ordergate/internal/admin"
)

// print writes the table and the recommendation.
func (s *sizing) print(w io.Writer) error {
	without := ""
	if s.segments {
		without = ", without segments"
	}
	fmt.Fprintf(w, "%s IDs, of absent ones %s may pass%s; %s, Redis with %s\n\n", admin.Grouped(s.IDs), admin.Percent(s.FalsePositiveRate), without,
		plural(s.Processes, "process", "processes"), plural(s.Replicas, "replica", "replicas"))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tA PROCESS\tREDIS\tBYTES/ID\tHASHES\tSHARDS\tROUND TRIPS\tPASS\tIN ALL")
	var notes strings.Builder
	for _, k := range s.Kinds {
		fmt.Fprintln(table, strings.Join(k.row(), "\t"))
		if k.Problem != nil {
			fmt.Fprintf(&notes, "%s: %s\n", k.name(), *k.Problem)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	kind := s.Recommended.Kind
	if s.Recommended.Layout != nil {
		kind += ", " + *s.Recommended.Layout
	}
	_, err := fmt.Fprintf(w, "\n%srecommended: %s: %s\n", notes.String(), kind, s.Recommended.Reason)
	return err
}

// row returns the cells of a line of the table. A kind with a problem has empty cells: a
// note below the table states the problem.
func (k *kindSize) row() []string {
	if k.Problem != nil {
		return []string{k.name(), "-", "-", "-", "-", "-", "-", "-", "-"}
	}
	memory := func(bytes uint64) string {
		if bytes == 0 {
			return "-"
		}
		return admin.SizeText(bytes)
	}
	number := func(n *int) string {
		if n == nil {
			return "-"
		}
		return strconv.Itoa(*n)
	}
	trips := strconv.Itoa(k.RoundTrips.Least)
	if k.RoundTrips.Most != k.RoundTrips.Least {
		trips += " or " + strconv.Itoa(k.RoundTrips.Most)
	}
	pass := admin.Percent(k.FalsePositiveRate)
	if k.FalsePositiveRateMost > k.FalsePositiveRate {
		pass += " to " + admin.Percent(k.FalsePositiveRateMost)
	}
	return []string{
		k.name(), memory(k.ProcessBytes), memory(k.RedisBytes), fmt.Sprintf("%.2f", k.BytesPerID),
		number(k.Hashes), number(k.Shards), trips, pass, memory(k.TotalBytes),
	}
}

func plural(n int, one, many string) string {
	switch n {
	case 0:
		return "no " + many
	case 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// print writes the table and the recommendation.
func (s *sizing) print(w io.Writer) error {
	without := ""
	if s.segments {
		without = ", without segments"
	}
	fmt.Fprintf(w, "%s IDs, of absent ones %s may pass%s; %s, Redis with %s\n\n", grouped(s.IDs), percent(s.FalsePositiveRate), without,
		plural(s.Processes, "process", "processes"), plural(s.Replicas, "replica", "replicas"))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "KIND\tA PROCESS\tREDIS\tBYTES/ID\tHASHES\tSHARDS\tROUND TRIPS\tPASS\tIN ALL"
	if s.priced() {
		head += "\tA MONTH"
	}
	fmt.Fprintln(table, head)
	var notes strings.Builder
	for _, k := range s.Kinds {
		fmt.Fprintln(table, strings.Join(k.row(s.priced()), "\t"))
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

// priced reports whether a price was given. Of some kind there is always a size.
func (s *sizing) priced() bool {
	return slices.ContainsFunc(s.Kinds, func(k kindSize) bool { return k.PricePerMonth != nil })
}

// row returns the cells of a line of the table. Where there is a problem they are
// empty: it is told below.
func (k *kindSize) row(priced bool) []string {
	if k.Problem != nil {
		cells := []string{k.name(), "-", "-", "-", "-", "-", "-", "-", "-"}
		if priced {
			cells = append(cells, "-")
		}
		return cells
	}
	memory := func(bytes uint64) string {
		if bytes == 0 {
			return "-"
		}
		return sizeText(bytes)
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
	pass := percent(k.FalsePositiveRate)
	if k.FalsePositiveRateMost > k.FalsePositiveRate {
		pass += " to " + percent(k.FalsePositiveRateMost)
	}
	cells := []string{
		k.name(), memory(k.ProcessBytes), memory(k.RedisBytes), fmt.Sprintf("%.2f", k.BytesPerID),
		number(k.Hashes), number(k.Shards), trips, pass, memory(k.TotalBytes),
	}
	if k.PricePerMonth != nil {
		cells = append(cells, fmt.Sprintf("%.2f", *k.PricePerMonth))
	}
	return cells
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

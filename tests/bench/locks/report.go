package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"
)

// table is text in rows and columns. The first column names the row.
type table struct {
	title  string
	note   string
	header []string
	rows   [][]string
}

// table makes the table of what was measured: medians, and, where the section
// asks for it, what we did of what each did: the median of the rounds' ratios
// with the lowest and the highest.
func (r results) table() table {
	t := table{title: r.section.title, note: r.section.note, header: []string{""}}
	for _, m := range r.section.metrics {
		t.header = append(t.header, string(m))
	}
	versus := r.section.versus != "" && slices.Contains(r.names, nameOurs)
	if versus {
		t.header = append(t.header, nameOurs+" : it")
	}
	for _, name := range r.names {
		row := []string{name}
		for _, m := range r.section.metrics {
			cell := ""
			if values := r.values(name, m); len(values) > 0 { // no hold has a mean where nobody had the lock
				cell = m.text(median(values))
			}
			row = append(row, cell)
		}
		if versus {
			row = append(row, ratioText(r.ratios(r.section.versus, nameOurs, name)))
		}
		t.rows = append(t.rows, row)
		if n := r.broken[name]; n > 0 {
			t.note += fmt.Sprintf("\n%s let two callers in at a time, in rounds that were then measured again: %d.", name, n)
		}
	}
	return t
}

func ratioText(ratios []float64) string {
	if len(ratios) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
}

// text returns a figure with the digits that mean something.
func (m metric) text(v float64) string {
	switch m {
	case inUse:
		return fmt.Sprintf("%.0f%%", v)
	case rate, p50Micros, p99Micros, memory, grants, fewest, most, granted, waitP50, waitP99:
		return fmt.Sprintf("%.0f", v)
	case allocs, clientCPU, redisCPU:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// report writes tables, as plain text or as Markdown. It keeps the first error.
type report struct {
	w        io.Writer
	markdown bool
	err      error
}

const introText = `Medians of %d rounds of %v; in a round all take their turns. A ratio is taken
within each round, the brackets have the lowest and the highest. Only ratios mean
anything: callers and Redis %s share %d CPUs (%s/%s, load average %s at the
start). Requests are commands that the client sent, per operation or grant; a proxy
counts them in a round of its own.

`

// intro says how to read what follows.
func (r *report) intro(s settings, redis string) {
	r.printf(introText, s.rounds, s.length, redis, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, loadAverage())
}

// loadAverage returns that of the last minute, as the kernel writes it.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

func (r *report) table(t table) {
	if len(t.rows) == 0 {
		return
	}
	if r.markdown {
		r.printf("## %s\n\n%s\n\n", t.title, t.note)
		r.printf("| %s |\n|---|%s\n", strings.Join(t.header, " | "), strings.Repeat("---:|", len(t.header)-1))
		for _, row := range t.rows {
			r.printf("| %s |\n", strings.Join(row, " | "))
		}
		r.printf("\n")
		return
	}
	widths := make([]int, len(t.header))
	lines := append([][]string{t.header}, t.rows...)
	for _, row := range lines {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	r.printf("%s\n%s\n\n", strings.ToUpper(t.title), t.note)
	for _, row := range lines {
		line := fmt.Sprintf("%-*s", widths[0], row[0])
		for i := 1; i < len(row); i++ {
			line += fmt.Sprintf("  %*s", widths[i], row[i])
		}
		r.printf("%s\n", strings.TrimRight(line, " "))
	}
	r.printf("\n")
}

func (r *report) printf(format string, args ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.w, format, args...)
	}
}

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
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

// report writes tables, as plain text or as Markdown. It keeps the first error.
type report struct {
	w        io.Writer
	markdown bool
	err      error
}

const introText = `Medians of %d rounds; in a round everything of a table is measured in turns. CPU is
in µs per request, user and system time of the process. A ratio is taken within
each round, the brackets have the lowest and the highest. Only ratios mean
anything: client, servers and backend share %d CPUs (%s/%s, load average %s
at the start).

`

// intro says how to read what follows.
func (r *report) intro(s settings) {
	r.printf(introText, s.rounds, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, loadAverage())
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
	if r.markdown {
		r.printf("### %s\n\n%s\n\n", t.title, t.note)
		r.printf("| %s |\n|---|%s\n", strings.Join(t.header, " | "), strings.Repeat("---:|", len(t.header)-1))
		for _, row := range t.rows {
			r.printf("| %s |\n", strings.Join(row, " | "))
		}
		r.printf("\n")
		return
	}
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	r.printf("%s\n%s\n\n", strings.ToUpper(t.title), t.note)
	for _, row := range append([][]string{t.header}, t.rows...) {
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

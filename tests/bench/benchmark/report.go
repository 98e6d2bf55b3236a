package benchmark

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Table is text in rows and columns. The first column names the row.
type Table struct {
	Title  string
	Note   string
	Header []string
	Rows   [][]string
}

// NewTable returns a table without rows, whose columns are metrics.
func NewTable(title, note string, metrics []Metric) Table {
	t := Table{Title: title, Note: note, Header: []string{""}}
	for _, m := range metrics {
		t.Header = append(t.Header, m.Name)
	}
	return t
}

// Report writes tables, as plain text or as Markdown. It keeps the first error, and
// writes nothing after it.
type Report struct {
	w       io.Writer
	heading string // of a table in Markdown, "" for plain text
	err     error
}

// NewReport returns a report. In Markdown a title begins with heading, such as "##".
func NewReport(w io.Writer, markdown bool, heading string) *Report {
	if !markdown {
		heading = ""
	}
	return &Report{w: w, heading: heading}
}

// Err returns the first error of writing.
func (r *Report) Err() error {
	if r.err != nil {
		return fmt.Errorf("writing the tables: %w", r.err)
	}
	return nil
}

// Printf writes text as it is.
func (r *Report) Printf(format string, args ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.w, format, args...)
	}
}

// Table writes a table, and nothing if it has no rows.
func (r *Report) Table(t Table) {
	switch {
	case len(t.Rows) == 0:
	case r.heading != "":
		r.markdown(t)
	default:
		r.text(t)
	}
}

func (r *Report) markdown(t Table) {
	r.Printf("%s %s\n\n%s\n\n", r.heading, t.Title, t.Note)
	r.Printf("| %s |\n|---|%s\n", strings.Join(t.Header, " | "), strings.Repeat("---:|", len(t.Header)-1))
	for _, row := range t.Rows {
		r.Printf("| %s |\n", strings.Join(row, " | "))
	}
	r.Printf("\n")
}

func (r *Report) text(t Table) {
	widths := make([]int, len(t.Header))
	lines := append([][]string{t.Header}, t.Rows...)
	for _, row := range lines {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	r.Printf("%s\n%s\n\n", strings.ToUpper(t.Title), t.Note)
	for _, row := range lines {
		line := fmt.Sprintf("%-*s", widths[0], row[0])
		for i := 1; i < len(row); i++ {
			line += fmt.Sprintf("  %*s", widths[i], row[i])
		}
		r.Printf("%s\n", strings.TrimRight(line, " "))
	}
	r.Printf("\n")
}

// LoadAverage returns that of the last minute, as the kernel writes it, or
// "unknown".
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

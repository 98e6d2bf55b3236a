package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// tone is the colour of a cell.
type tone int

const (
	plain tone = iota
	good
	wrong
	quiet
)

type cell struct {
	text string
	tone tone
}

// row is a line of the table, or a title above some when it has no cells.
type row struct {
	title string
	cells []cell
}

// columns are the two lines of the heading. The first two columns and the last
// hold words and are aligned left, the others hold numbers.
var columns = [...][2]string{
	{"", ""}, {"", "ordergate"}, {"", "requests"}, {"reached", "service"}, {"answered", "by gate"},
	{"", "p50"}, {"", "p99"}, {"", "outcome"},
}

// Columns by their place.
const (
	reachedService = 3
	byGate         = 4
)

// footnote keeps a reader from taking the latencies for more than they are.
const footnote = `Reached: lines in the service's own access log. p50, p99: as the clients saw it,
who share this machine with everything they call. A lookup costs these services
next to nothing; a real one asks its database.
`

// renderTable returns the table of all acts, at most 80 columns wide as long as
// nothing goes wrong.
func renderTable(results []result, st style) string {
	rows := tableRows(results)
	var widths [len(columns)]int
	for i, c := range columns {
		widths[i] = max(len(c[0]), len(c[1]))
	}
	for _, r := range rows {
		for i, c := range r.cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	b.WriteByte('\n')
	for line := range 2 {
		heading := make([]cell, len(columns))
		for i, c := range columns {
			heading[i] = cell{c[line], quiet}
		}
		writeCells(&b, heading, widths[:], st)
	}
	for _, r := range rows {
		if r.cells == nil {
			fmt.Fprintf(&b, "\n%s\n", st.bold(r.title))
			continue
		}
		writeCells(&b, r.cells, widths[:], st)
	}
	b.WriteByte('\n')
	for line := range strings.Lines(footnote) {
		b.WriteString(st.dim(strings.TrimSuffix(line, "\n")) + "\n")
	}
	b.WriteByte('\n')
	return b.String()
}

// writeCells aligns first and colours then.
func writeCells(b *strings.Builder, cells []cell, widths []int, st style) {
	var line strings.Builder
	for i, c := range cells {
		padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
		text := c.text
		switch c.tone {
		case good:
			text = st.green(text)
		case wrong:
			text = st.red(text)
		case quiet:
			text = st.dim(text)
		}
		if i < 2 || i == len(cells)-1 {
			text += padding
		} else {
			text = padding + text
		}
		line.WriteString("  " + text)
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

func tableRows(results []result) []row {
	kinds := []struct {
		title   string
		tally   func(*acts) tally
		outcome func(*acts) cell
		limit   int // how many may reach a service with ordergate; -1: any number
	}{
		{"1 Lookups of made-up order IDs", func(a *acts) tally { return a.madeUp },
			func(a *acts) cell { return all(a.madeUp, "all 404") }, falsePositives},
		{"  Lookups of orders that exist, at the same time", func(a *acts) tally { return a.existing },
			func(a *acts) cell { return all(a.existing, "all 200") }, -1},
		{"2 New orders, each looked up at once", func(a *acts) tally { return a.creates },
			func(a *acts) cell {
				return cell{fmt.Sprintf("%d/%d found", a.found, creates), toneOf(a.found == creates)}
			}, -1},
		{fmt.Sprintf("3 Settlements of one order, all at the same time; paying takes %d ms", payMillis), func(a *acts) tally { return a.settle },
			func(a *acts) cell {
				c := cell{plural(a.payments, "payment"), toneOf(a.payments == 1)}
				if a.settle.bad > 0 {
					c = cell{fmt.Sprintf("%s, %d failed", c.text, a.settle.bad), wrong}
				}
				return c
			}, -1},
		{"4 A settlement that is repeated", func(a *acts) tally { return a.repeats },
			func(a *acts) cell {
				return cell{fmt.Sprintf("%d/%d same", a.same, repeats), toneOf(a.same == repeats)}
			}, 0},
		{"  New orders, each sent twice at once with one Idempotency-Key", func(a *acts) tally { return a.twice },
			func(a *acts) cell { return cell{plural(a.orders, "order"), toneOf(a.orders == creates)} }, creates},
	}
	var rows []row
	for _, kind := range kinds {
		rows = append(rows, row{title: kind.title})
		for i := range results {
			r := &results[i]
			without := tableRow(r.service, "without", kind.tally(&r.without), kind.outcome(&r.without))
			without.cells[byGate] = cell{"-", quiet} // there is none
			with := tableRow("", "with", kind.tally(&r.with), kind.outcome(&r.with))
			if kind.limit >= 0 {
				with.cells[reachedService].tone = toneOf(kind.tally(&r.with).reached <= kind.limit)
			}
			rows = append(rows, without, with)
		}
	}
	return rows
}

func tableRow(service, way string, t tally, outcome cell) row {
	return row{cells: []cell{
		{service, plain}, {way, plain}, {thousands(t.requests), plain}, {thousands(t.reached), plain},
		{thousands(t.byGate), plain}, {millis(t.p50), plain}, {millis(t.p99), plain}, outcome,
	}}
}

// all is the outcome of requests that should all be answered in one way.
func all(t tally, text string) cell {
	if t.bad > 0 {
		return cell{fmt.Sprintf("%d not %s", t.bad, strings.TrimPrefix(text, "all ")), wrong}
	}
	return cell{text, good}
}

func toneOf(ok bool) tone {
	if ok {
		return good
	}
	return wrong
}

// thousands writes a number of requests with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

// millis writes a latency in milliseconds, with three or more digits that mean
// something.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 9.995:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 99.95:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return thousands(int(ms+0.5)) + " ms"
}

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// panel is a part of the plot: one figure of all candidates as bars.
type panel struct {
	section string
	metric  metric
	title   string
}

// panels are drawn for each number of IDs.
var panels = []panel{
	{"lookup", hitTime, "hit in ns, less is better"},
	{"lookup", missTime, "miss in ns, less is better"},
	{"lookup", hitApart, "hit apart in ns, less is better"},
	{"build", buildCPU, "M IDs/s added a core, more is better"},
}

// The plot's measures, in pixels.
const (
	panelWidth  = 500
	barHeight   = 16
	barStep     = 22
	nameWidth   = 150
	valueWidth  = 60
	titleHeight = 34
	margin      = 16
)

// writePlot writes an SVG file of the medians, two panels beside each other. A
// thin line spans the rounds. What was not measured has no panel.
func writePlot(path string, all []results) error {
	if err := os.WriteFile(path, []byte(plot(all)), 0o644); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

func plot(all []results) string {
	var body strings.Builder
	var sizes []int
	for _, r := range all {
		if !slices.Contains(sizes, r.section.n) {
			sizes = append(sizes, r.section.n)
		}
	}
	row, column, height, bottom := 0, 0, 0, margin
	for _, n := range sizes {
		for _, p := range panels {
			i := slices.IndexFunc(all, func(r results) bool { return r.section.n == n && r.section.name == p.section })
			if i < 0 {
				continue
			}
			if column == 2 {
				row, column, height = row+height, 0, 0
			}
			height = max(height, p.draw(&body, all[i], margin+column*panelWidth, margin+row))
			bottom = margin + row + height
			column++
		}
	}
	width := 2*panelWidth + margin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, bottom) + body.String() + "</svg>\n"
}

// draw writes the panel at a place, and returns how high it is.
func (p panel) draw(w *strings.Builder, r results, x, y int) int {
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s IDs: %s</text>\n", x, y+14, count(r.section.n), p.title)
	longest := 0.0
	for _, name := range r.names {
		longest = max(longest, slices.Max(append(r.values(name, p.metric), 0)))
	}
	zero := x + nameWidth
	scale := func(v float64) float64 {
		if longest == 0 {
			return 0
		}
		return v / longest * (panelWidth - nameWidth - valueWidth)
	}
	top := y + titleHeight - barHeight/2
	for _, name := range r.names {
		fill := "#9aa5b1"
		if strings.HasPrefix(name, nameBlocked) { // its other layouts too
			fill = "#1f6feb"
		}
		middle := top + barHeight/2
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", zero-6, middle+4, name)
		if values := r.values(name, p.metric); len(values) > 0 {
			v, low, high := median(values), slices.Min(values), slices.Max(values)
			fmt.Fprintf(w, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
				zero, top, scale(v), barHeight, fill)
			fmt.Fprintf(w, "<path d=\"M%.1f %d H%.1f\" stroke=\"#333\"/>\n",
				float64(zero)+scale(low), middle, float64(zero)+scale(high))
			fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%d\">%s</text>\n",
				float64(zero)+scale(high)+5, middle+4, p.metric.text(v))
		}
		top += barStep
	}
	return top - y + barHeight/2
}

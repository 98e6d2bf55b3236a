package benchmark

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Panel is a part of a plot: one figure of all candidates as bars.
type Panel struct {
	Title   string
	Results Results
	Metric  Metric
}

// Plot is an SVG picture of medians, two panels beside each other. A thin line spans
// the rounds.
type Plot struct {
	PanelWidth int // pixels
	NameWidth  int // of it, for the names
	// Ours tells which names are ordergate's, whose bars have another colour.
	Ours   func(name string) bool
	Panels []Panel
}

// The measures that all plots share, in pixels.
const (
	barHeight   = 16
	barStep     = 22
	valueWidth  = 60
	titleHeight = 34
	margin      = 16
)

// Write writes the picture to a file.
func (p Plot) Write(path string) error {
	if err := os.WriteFile(path, []byte(p.SVG()), 0o644); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

// SVG returns the picture.
func (p Plot) SVG() string {
	var body strings.Builder
	row, height, bottom := 0, 0, margin
	for i, one := range p.Panels {
		column := i % 2
		if i > 0 && column == 0 {
			row, height = row+height, 0
		}
		height = max(height, p.draw(&body, one, margin+column*p.PanelWidth, margin+row))
		bottom = margin + row + height
	}
	width := 2*p.PanelWidth + margin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, bottom) + body.String() + "</svg>\n"
}

// draw draws a panel at a place, and returns how high it is.
func (p Plot) draw(w *strings.Builder, panel Panel, x, y int) int {
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", x, y+14, panel.Title)
	r, longest := panel.Results, 0.0
	for _, name := range r.Names {
		longest = max(longest, slices.Max(append(r.Values(name, panel.Metric), 0)))
	}
	zero := x + p.NameWidth
	scale := func(v float64) float64 {
		if longest == 0 {
			return 0
		}
		return v / longest * float64(p.PanelWidth-p.NameWidth-valueWidth)
	}
	at := func(v float64) float64 { return float64(zero) + scale(v) }
	top := y + titleHeight - barHeight/2
	for _, name := range r.Names {
		fill := "#9aa5b1"
		if p.Ours(name) {
			fill = "#1f6feb"
		}
		middle := top + barHeight/2
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", zero-6, middle+4, name)
		if values := r.Values(name, panel.Metric); len(values) > 0 {
			v, low, high := Median(values), slices.Min(values), slices.Max(values)
			fmt.Fprintf(w, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
				zero, top, scale(v), barHeight, fill)
			fmt.Fprintf(w, "<path d=\"M%.1f %d H%.1f\" stroke=\"#333\"/>\n", at(low), middle, at(high))
			fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", at(high)+5, middle+4, panel.Metric.Text(v))
		}
		top += barStep
	}
	return top - y + barHeight/2
}

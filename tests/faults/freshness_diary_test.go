package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// diary is what was done to the fleet, and when.
type diary struct {
	mu    sync.Mutex
	pages []*happening
}

type happening struct {
	what     string
	from, to time.Time // zero: it goes on
}

// note begins a page, which the returned function ends.
func (d *diary) note(format string, args ...any) (over func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := &happening{what: fmt.Sprintf(format, args...), from: time.Now()}
	d.pages = append(d.pages, h)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		h.to = time.Now()
	}
}

// around returns what was going on shortly before a moment.
func (d *diary) around(at time.Time) string {
	const shortly = 12 * time.Second
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, h := range d.pages {
		if !h.to.IsZero() && at.Sub(h.to) > shortly {
			continue
		}
		end := "goes on"
		if !h.to.IsZero() {
			end = clockTime(h.to)
		}
		fmt.Fprintf(&b, "  %s .. %s %s\n", clockTime(h.from), end, h.what)
	}
	return b.String()
}

// counts tells how often each thing was done, by the first words of what was noted.
func (d *diary) counts() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := make(map[string]int)
	for _, h := range d.pages {
		what, _, _ := strings.Cut(h.what, ":")
		n[what]++
	}
	var list []string
	for what, times := range n {
		list = append(list, fmt.Sprintf("%d %s", times, what))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func clockTime(at time.Time) string { return at.UTC().Format("15:04:05.000") }

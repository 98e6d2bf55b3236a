// Package gatetest has the parts behind a gate for tests of the gate and of its adapters: a
// [Filter], a [Lock] and recorders. They write to a [Journal] what happens to them.
package gatetest

import (
	"slices"
	"strings"
	"sync"
)

// Journal is a list of events. The parts that share one write to it in the order of their
// events. It is safe for concurrent use. A nil Journal ignores events.
type Journal struct {
	Fault func(event string) // called before an event is added: it may panic; nil: it is not

	mu    sync.Mutex
	lines []string
}

// Add appends an event: what happened, and after ": " the reason.
func (j *Journal) Add(event ...string) {
	if j == nil {
		return
	}
	line := strings.Join(event, "")
	if j.Fault != nil {
		j.Fault(line)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// Lines returns all events; nil: none.
func (j *Journal) Lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// After returns the rest of each event that begins with the prefix; nil: none.
func (j *Journal) After(prefix string) (rest []string) {
	for _, line := range j.Lines() {
		if r, ok := strings.CutPrefix(line, prefix); ok {
			rest = append(rest, r)
		}
	}
	return rest
}

// Short returns all events without their reasons, with commas between them.
func (j *Journal) Short() string {
	lines := j.Lines()
	for i, line := range lines {
		lines[i], _, _ = strings.Cut(line, ": ")
	}
	return strings.Join(lines, ", ")
}

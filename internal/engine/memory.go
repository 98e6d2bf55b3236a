package engine

import "runtime/debug"

const (
	// gcHeadroom is how much garbage may pile up before it is collected, in bytes.
	gcHeadroom = 64 << 20
	// gcMostPercent is where more headroom was seen to help no further.
	gcMostPercent = 400
	// gcBaseHeap is what the process holds besides its filters, about.
	gcBaseHeap = 4 << 20
)

// TuneGC collects garbage less often than Go would by itself. A heap of a few
// megabytes is collected every few thousand checks, which was a tenth of their
// cost; a large filter leaves room enough at Go's own pace. GOGC, where it is set,
// has the last word.
func (m *Engine) TuneGC(getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent(m.filterBytes()))
	}
}

// gcPercent returns the GC percentage that lets gcHeadroom pile up.
func gcPercent(filterBytes uint64) int {
	percent := 100 * gcHeadroom / (gcBaseHeap + filterBytes)
	return int(min(max(percent, 100), gcMostPercent))
}

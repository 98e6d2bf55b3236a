package engine

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcHeadroom is how much garbage may pile up before it is collected, in bytes.
	gcHeadroom = 64 << 20
	// gcMaxPercent is where more headroom was seen to help no further.
	gcMaxPercent = 400
	// gcMinPercent keeps a collection of a large heap from beginning when the one before
	// has hardly ended. By then the headroom is more than gcHeadroom.
	gcMinPercent = 25
)

// TuneGC collects garbage less often than Go would by itself while there is little in use,
// and more often while there is much. A heap of a few megabytes is collected every few
// thousand checks, which was a tenth of their cost; beside 20,000 calls that wait, as much
// garbage as they use themselves is what an operator would have to find room for. GOGC,
// where it is set, has the last word.
func (m *Engine) TuneGC(getenv func(string) string) {
	if getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(gcMaxPercent)
	percent := gcMaxPercent
	afterGC(func() (goOn bool) {
		// What a collection goes by is the heap and the stacks.
		in := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
		metrics.Read(in)
		if next := gcPercent(in[0].Value.Uint64() + in[1].Value.Uint64()); next != percent {
			percent = next
			debug.SetGCPercent(next)
		}
		select {
		case <-m.ending:
			return false
		default:
			return true
		}
	})
}

// gcPercent returns the GC percentage that lets gcHeadroom pile up beside so many bytes in
// use.
func gcPercent(used uint64) int {
	percent := 100 * gcHeadroom / max(used, 1)
	return int(min(max(percent, gcMinPercent), gcMaxPercent))
}

// afterGC calls a function after each collection, until that returns false.
func afterGC(do func() (goOn bool)) {
	type cycle [16]byte // what is smaller may share its memory with what lives on
	var ended func(*cycle)
	ended = func(c *cycle) {
		if do() {
			runtime.SetFinalizer(c, ended)
		}
	}
	runtime.SetFinalizer(new(cycle), ended)
}

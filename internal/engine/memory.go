package engine

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcHeadroom is how much garbage may accumulate before a collection, in bytes.
	gcHeadroom = 64 << 20
	// gcMaxPercent is the percentage above which more headroom showed no benefit.
	gcMaxPercent = 400
	// gcMinPercent leaves time between two collections of a large heap. Where it applies, the
	// headroom is more than gcHeadroom.
	gcMinPercent = 25
)

// TuneGC collects garbage less often than Go's default while little memory is in use, and more
// often while much is in use. By default, Go collects a heap of a few megabytes every few
// thousand checks, which was a tenth of their cost. With 20,000 waiting calls, Go would let as
// much garbage accumulate as the calls use. TuneGC does nothing if GOGC is set.
func (m *Engine) TuneGC(getenv func(string) string) {
	if getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(gcMaxPercent)
	percent := gcMaxPercent
	afterGC(func() (goOn bool) {
		// Go schedules collections by the sizes of the heap and the stacks.
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

// gcPercent returns the GC percentage for gcHeadroom bytes of garbage, with this many bytes in use.
func gcPercent(used uint64) int {
	percent := 100 * gcHeadroom / max(used, 1)
	return int(min(max(percent, gcMinPercent), gcMaxPercent))
}

// afterGC calls a function after each collection, until the function returns false.
func afterGC(do func() (goOn bool)) {
	type cycle [16]byte // a smaller object may share its memory block with an object that stays alive
	var ended func(*cycle)
	ended = func(c *cycle) {
		if do() {
			runtime.SetFinalizer(c, ended)
		}
	}
	runtime.SetFinalizer(new(cycle), ended)
}

package bloom

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// mappingOf returns what /proc/self/smaps says of the mapping of an address, ""
// if nothing is there.
func mappingOf(t *testing.T, address uintptr) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for line := range strings.Lines(string(text)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			if found != "" {
				break
			}
			if from <= address && address < to {
				found = line
			}
		} else if found != "" {
			found += line
		}
	}
	return found
}

func addressOf(f *Filter) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(f.words))) }

func TestMemoryIsAskedForInHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("this kernel has no transparent huge pages")
	}
	f := mustNew(t, params("", 20_000_000, 0.001))
	flags := ""
	for line := range strings.Lines(mappingOf(t, addressOf(f))) {
		if rest, ok := strings.CutPrefix(line, "VmFlags:"); ok {
			flags = rest
		}
	}
	if !strings.Contains(flags, " hg") {
		t.Errorf("the mapping's flags are %q, want hg among them", flags)
	}
	runtime.KeepAlive(f)
}

func TestMemoryStartsAtACacheLine(t *testing.T) {
	for capacity := uint64(1); capacity < 10_000_000; capacity = capacity*3 + 1 {
		f := mustNew(t, params("", capacity, 0.01))
		if at := addressOf(f); at%blockBytes != 0 {
			t.Errorf("capacity %d: the words start at %#x", capacity, at)
		}
	}
}

// TestMemoryGoesBack drops a filter. Its mapping must go; it must not go earlier
// than the last method on it ends, which is what a collector that runs all the
// time tries.
func TestMemoryGoesBack(t *testing.T) {
	stop := make(chan struct{})
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	ids := make([]string, 20_000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	for range 10 {
		for _, layout := range layouts {
			p := params(layout, 2_000_000, 0.001)
			// Nobody has these once the method has begun.
			mustNew(t, p).AddAll(ids)
			mustNew(t, p).Measure()
			full := make([]byte, 1<<20)
			if _, err := mustNew(t, p).ReadChunk(full, 0); err != nil {
				t.Fatal(err)
			}
			if err := mustNew(t, p).MergeChunk(full, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := addressOf(mustNew(t, params("", 2_000_000, 0.001)))
	deadline := time.Now().Add(30 * time.Second)
	for mappingOf(t, at) != "" {
		if time.Now().After(deadline) {
			t.Fatal("the memory of a filter that nobody has is still there")
		}
		runtime.Gosched()
	}
	close(stop)
	collector.Wait()
}

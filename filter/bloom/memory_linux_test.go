package bloom

import (
	"fmt"
	"os"
	"runtime"
	"strings"
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

// TestMemoryGoesBack drops a filter: its mapping must go. The stack of a thread may take its
// place, which has other flags: a filter asks for huge pages.
func TestMemoryGoesBack(t *testing.T) {
	for _, layout := range layouts {
		f := mustNew(t, params(layout, 2_000_000, 0.001))
		f.Add("1001")
		at := addressOf(f)
		flags := func() string {
			_, flags, _ := strings.Cut(mappingOf(t, at), "VmFlags:")
			return flags
		}
		mapped := flags()
		if mapped == "" {
			t.Fatal("the memory of a filter is not there")
		}
		runtime.KeepAlive(f)
		deadline := time.Now().Add(30 * time.Second)
		for flags() == mapped {
			if time.Now().After(deadline) {
				t.Fatal("the memory of a filter that nobody has is still there")
			}
			runtime.GC()
		}
	}
}

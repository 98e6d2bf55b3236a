package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestTimerSlack finds the timer slack of cmd/internal/command/slack_linux.go in each thread of the sidecar.
func TestTimerSlack(t *testing.T) {
	needsSidecar(t, "inside Envoy the slack is that of its monitor alone")
	t.Parallel()
	s := newStack(t, settings{backend: newBackend(t).addr(), orders: 10})
	for tid, slack := range timerSlacks(t, s.gate.PID()) {
		if slack != 1_000_000 {
			t.Errorf("thread %s has a timer slack of %d ns", tid, slack)
		}
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.gate.PID()))
	if err != nil || string(name) == "exe\n" {
		t.Errorf("ps shows the process as %q (error %v)", name, err)
	}
}

// TestModuleThreads finds one thread in Envoy's process with the timer slack that Go's
// monitor is given (internal/envoymodule/abi/threads.c), and that thread is the monitor:
// of Go's threads the one that wakes up most while requests pass.
func TestModuleThreads(t *testing.T) {
	needsModule(t)
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	slacks := timerSlacks(t, s.gate.PID())
	var monitors []string
	for tid, slack := range slacks {
		if slack == 2_000_000 {
			monitors = append(monitors, tid)
		}
	}
	if len(monitors) != 1 {
		t.Fatalf("these threads have the monitor's timer slack: %q, of %v", monitors, slacks)
	}
	const requests, callers = 20_000, 4
	before := wakeUps(t, s.gate.PID())
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range requests / callers {
				if r := s.must("GET", "/orders/1", ""); r.status != 200 {
					t.Errorf("status %d", r.status)
					return
				}
			}
		})
	}
	wg.Wait()
	most, times := "", -1
	for tid, n := range wakeUps(t, s.gate.PID()) {
		if n -= before[tid]; n > times {
			most, times = tid, n
		}
	}
	if most != monitors[0] {
		t.Errorf("%s wakes up most, %d times, and the monitor is %s, which did %d times", most, times, monitors[0], wakeUps(t, s.gate.PID())[monitors[0]]-before[monitors[0]])
	}
}

// timerSlacks returns the timer slack of each thread of a process, in ns. Only root may
// know.
func timerSlacks(t *testing.T, pid int) map[string]int {
	t.Helper()
	all := make(map[string]int)
	for _, tid := range threadsOf(t, pid) {
		text, err := os.ReadFile("/proc/" + tid + "/timerslack_ns")
		if errors.Is(err, fs.ErrPermission) && os.Getenv("CI") == "" {
			t.Skip("the timer slack of another process is root's to read")
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		must(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		must(t, err)
		all[tid] = n
	}
	return all
}

// wakeUps returns how often each thread that Go began has waited for something. Envoy
// gives its own ones other names, but for the first.
func wakeUps(t *testing.T, pid int) map[string]int {
	t.Helper()
	all := make(map[string]int)
	for _, tid := range threadsOf(t, pid) {
		dir := filepath.Join("/proc", fmt.Sprint(pid), "task", tid)
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		name, n := "", -1
		for line := range strings.Lines(string(status)) {
			switch key, value, _ := strings.Cut(line, ":"); key {
			case "Name":
				name = strings.TrimSpace(value)
			case "voluntary_ctxt_switches":
				n, err = strconv.Atoi(strings.TrimSpace(value))
				must(t, err)
			}
		}
		if tid != fmt.Sprint(pid) && strings.HasPrefix(name, "envoy") {
			all[tid] = n
		}
	}
	if len(all) == 0 {
		t.Fatal("no thread of Go's was found")
	}
	return all
}

func threadsOf(t *testing.T, pid int) (tids []string) {
	t.Helper()
	dirs, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "task"))
	bedtest.Check(t, err)
	for _, d := range dirs {
		tids = append(tids, d.Name())
	}
	return tids
}

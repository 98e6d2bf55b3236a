package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
)

// memory is what a process holds, in bytes, and its goroutines.
type memory struct{ rss, heap, stacks, goroutines float64 }

func (m memory) String() string {
	return fmt.Sprintf("RSS %.1f MB, heap %.1f MB, stacks %.1f MB, %.0f goroutines", m.rss/1e6, m.heap/1e6, m.stacks/1e6, m.goroutines)
}

// residentOf reads a process's resident set from proc_pid_statm(5).
func residentOf(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process's memory: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("reading a process's memory: statm is %q", text)
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()), err
}

// ownMemory is that of this process.
func ownMemory() (m memory, err error) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/sched/goroutines:goroutines"},
	}
	metrics.Read(samples)
	value := func(i int) float64 { return float64(samples[i].Value.Uint64()) }
	m = memory{heap: value(0) + value(1), stacks: value(2), goroutines: value(3)}
	m.rss, err = residentOf(os.Getpid())
	return m, err
}

// scrape reads the metrics of an ordergate: the sums over all labels.
func scrape(ctx context.Context, admin string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %s", resp.Status)
	}
	all := make(map[string]float64)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			name, _, _ = strings.Cut(name, "{")
			all[name] += n
		}
	}
	return all, lines.Err()
}

// memoryOf is that of the process with this PID, whose metrics are at admin.
func memoryOf(ctx context.Context, pid int, admin string) (memory, error) {
	all, err := scrape(ctx, admin)
	if err != nil {
		return memory{}, err
	}
	m := memory{
		heap: all["go_memstats_heap_inuse_bytes"], stacks: all["go_memstats_stack_inuse_bytes"],
		goroutines: all["go_goroutines"],
	}
	m.rss, err = residentOf(pid)
	return m, err
}

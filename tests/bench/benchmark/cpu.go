package benchmark

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat: the kernel keeps USER_HZ at 100
// for all programs, whatever its own is.
const tick = time.Second / 100

// ProcessCPU returns the CPU time that a process and its children have used, in user
// and kernel mode, by all their threads, ended ones included. So a master and its
// workers count as one, but not what a child had used that has ended. It needs
// Linux's /proc.
func ProcessCPU(pid int) (time.Duration, error) {
	total, err := ownCPU(pid)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process's children: %w", err)
	}
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("reading the children of process %d: %w", pid, err)
		}
		used, err := ownCPU(child)
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

func ownCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process's CPU time: %w", err)
	}
	used, err := parseStat(string(text))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return used, nil
}

// parseStat adds fields 14 and 15 of proc_pid_stat(5). The second is the
// program's name in brackets, and may hold anything.
func parseStat(text string) (time.Duration, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const user, system = 14 - 3, 15 - 3 // the first here is the third there
	if len(fields) <= system {
		return 0, fmt.Errorf("%q has too few fields", text)
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

package benchmark

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const stat = `812 (a) b (c) S 1 812 812 0 -1 4194560 97 0 0 0 123 45 9 9 20 0 1 0 548320 5492736 725`

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       time.Duration
		ok         bool
	}{
		{"user and system time, the name has brackets", stat, 1680 * time.Millisecond, true},
		{"cut off", "812 (sh) S 1 812", 0, false},
		{"empty", "", 0, false},
		{"no number", strings.Replace(stat, " 45 ", " x ", 1), 0, false},
	} {
		got, err := parseStat(tt.text)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

// TestProcessCPU has a child of a child work until the kernel has charged it.
func TestProcessCPU(t *testing.T) {
	bedtest.NeedProcesses(t)
	if _, err := ProcessCPU(os.Getpid()); err != nil {
		t.Skip(err) // no /proc
	}
	// The shell waits for its child, as a master does for its workers.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `sh -c 'echo; while read _; do n=0; while [ $n -lt 1000 ]; do n=$((n+1)); done; echo; done'; exit 7`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1)
	deadline := time.Now().Add(30 * time.Second)
	for {
		if _, err := out.Read(buffer); err != nil { // it has done a piece of work
			t.Fatal(err)
		}
		all, err := ProcessCPU(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := ownCPU(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if all >= alone+3*tick {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("30 s of a child's work took %v, and %v without the child", all, alone)
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("the shell ended with %v", err)
	}
	if _, err := ProcessCPU(-1); err == nil {
		t.Error("a process that is not there has a CPU time")
	}
}

package differential

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// guard runs a program in the place of the shell, beside a child that kills
// their process group once the pipe on descriptor 3 is closed: by us, or by the
// kernel when this process dies.
const guard = `(read -r forever <&3; kill -s KILL 0) & exec "$@" 3<&-`

// process is a running backend.
type process struct {
	name   string
	output string // the path of what it writes
	done   chan struct{}
	stop   func()
}

// start runs a program until the test ends. Files, if any, are its descriptors
// from 4 on; the test closes its own copies.
func start(t testing.TB, name string, env []string, files []*os.File, program string, args ...string) *process {
	t.Helper()
	p := &process{name: name, output: filepath.Join(t.TempDir(), name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.output)
	bedtest.Check(t, err)
	defer out.Close()
	held, hold, err := os.Pipe()
	bedtest.Check(t, err)
	defer held.Close()

	cmd := exec.Command("/bin/sh", append([]string{"-c", guard, "sh", program}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = append([]*os.File{held}, files...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		hold.Close()
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		_ = cmd.Wait() // it is killed in the end
		close(p.done)
	}()
	p.stop = func() {
		// The guard is in the group, so that it exists even when the program ended.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
	t.Cleanup(func() {
		p.stop()
		hold.Close()
		if t.Failed() {
			t.Logf("%s wrote at last: %s", name, p.tail())
		}
	})
	return p
}

// says waits until the process has written what matches and returns the first
// group.
func (p *process) says(t testing.TB, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var found string
	p.until(t, "wrote "+pattern, func() bool {
		text, err := os.ReadFile(p.output)
		if m := re.FindSubmatch(text); err == nil && m != nil {
			found = string(m[1])
		}
		return found != ""
	})
	return found
}

// startLimit bounds a start: a JVM on a busy machine needs seconds.
const startLimit = 60 * time.Second

func (p *process) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(startLimit)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-p.done:
			t.Fatalf("%s ended before it %s: %s", p.name, what, p.tail())
		case <-deadline:
			t.Fatalf("%s never %s within %v: %s", p.name, what, startLimit, p.tail())
		}
	}
}

// tail is the end of what the process wrote, in one line.
func (p *process) tail() string {
	text, err := os.ReadFile(p.output)
	if err != nil {
		return fmt.Sprint(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

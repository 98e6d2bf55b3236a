package faults

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// eventually bounds what other processes have to do on a busy machine.
const eventually = 30 * time.Second

// workerBinary is ./worker, compiled once, under the race detector if this test
// is. TestMain removes it.
var workerBinary = sync.OnceValues(func() (string, error) {
	args := []string{"build", "-o", filepath.Join(scratch, "worker")}
	if bedtest.Race {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "./worker")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the worker: %w: %s", err, out)
	}
	return filepath.Join(scratch, "worker"), nil
})

// guard runs a program in the place of the shell, beside a child that kills both
// once the pipe on descriptor 3 is closed: by us, or by the kernel when this
// process dies. A worker that is stopped would outlive it otherwise.
const guard = `(read -r forever <&3; kill -s KILL 0) & exec "$@" 3<&-`

// worker is a running worker that can be killed and started again.
type worker struct {
	t    *testing.T
	name string
	args []string
	log  string

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.Closer // closed, it has the worker end
	hold  io.Closer // closed, it has the guard kill
	ended chan error
}

// startWorker starts one that ends with the test.
func startWorker(t *testing.T, number int, args ...string) *worker {
	t.Helper()
	binary, err := workerBinary()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{
		t: t, name: fmt.Sprintf("worker %d", number),
		args: append([]string{binary, "-worker", fmt.Sprint(number)}, args...),
		log:  filepath.Join(t.TempDir(), fmt.Sprintf("worker-%d.log", number)),
	}
	w.start()
	t.Cleanup(func() {
		w.kill()
		if text, err := os.ReadFile(w.log); err == nil && t.Failed() {
			t.Logf("%s wrote: %s", w.name, text[max(0, len(text)-2000):])
		}
	})
	return w
}

func (w *worker) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	bedtest.Check(w.t, err)
	defer out.Close()
	held, hold, err := os.Pipe()
	bedtest.Check(w.t, err)
	defer held.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", guard, "sh"}, w.args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // a second otherwise
	cmd.ExtraFiles = []*os.File{held}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	bedtest.Check(w.t, err)
	if err := cmd.Start(); err != nil {
		hold.Close()
		w.t.Fatalf("starting %s: %v", w.name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	w.cmd, w.stdin, w.hold, w.ended = cmd, stdin, hold, ended
}

// signal sends to the program alone: the guard has to go on.
func (w *worker) signal(s syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.cmd.Process.Signal(s) // one that has ended shows in finish
}

func (w *worker) stop() { w.signal(syscall.SIGSTOP) }
func (w *worker) cont() { w.signal(syscall.SIGCONT) }

// kill ends it as a crash would, and waits.
func (w *worker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == nil {
		return
	}
	_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) // the guard is there in any case
	_ = w.wait()                                          // it was killed
	w.over()
}

func (w *worker) wait() error { return <-w.ended }

func (w *worker) over() {
	w.stdin.Close()
	w.hold.Close()
	w.cmd = nil
}

// finish asks it to end, and fails the test if it had ended before or does not end
// in order.
func (w *worker) finish() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case err := <-w.ended:
		w.t.Errorf("%s ended by itself: %v", w.name, err)
		w.ended <- err
	default:
	}
	w.stdin.Close()
	select {
	case err := <-w.ended:
		if err != nil {
			w.t.Errorf("%s ended with: %v", w.name, err)
		}
	case <-time.After(eventually):
		w.t.Errorf("%s does not end", w.name)
		_ = w.cmd.Process.Kill()
		_ = w.wait()
	}
	_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) // the guard
	w.over()
}

// flags makes a worker's arguments out of names and values.
func flags(pairs ...any) []string {
	var args []string
	for i := 0; i+1 < len(pairs); i += 2 {
		args = append(args, fmt.Sprintf("-%v=%v", pairs[i], pairs[i+1]))
	}
	return args
}

// via is the flag of that name.
func via(addrs map[string]string) string {
	var pairs []string
	for addr, other := range addrs {
		pairs = append(pairs, addr+"="+other)
	}
	return strings.Join(pairs, ",")
}

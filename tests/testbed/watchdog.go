package testbed

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guard reads the number of a process group, waits for the end of its input
// and kills the group.
const guard = `read -r group || exit; read -r forever; kill -s KILL -- "-$group"`

// watchdog kills a process group when this process dies. The kernel's
// parent-death signal reaches only what we started ourselves: it is not
// inherited, and PHP's workers would go on without their first process. The
// dog holds one end of a pipe; the kernel closes the other one with us. A nil
// watchdog does nothing.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func newWatchdog() (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", guard)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C on a terminal must not end it first
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting its watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting its watchdog: %w", err)
	}
	return &watchdog{cmd, pipe}, nil
}

// watch tells the dog which group is to die with us.
func (d *watchdog) watch(group int) {
	if d != nil {
		// It can fail only if somebody killed the dog: no reason not to serve.
		_, _ = fmt.Fprintln(d.pipe, group)
	}
}

// end takes the dog away, before it could see the pipe closed.
func (d *watchdog) end() {
	if d != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait() // says that it was killed; closes the pipe
	}
}

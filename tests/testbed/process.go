package testbed

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startLimit = 60 * time.Second // a JVM on a busy two-core machine needs seconds
	stopLimit  = 20 * time.Second // between the polite signal and SIGKILL; Envoy takes seconds on a busy machine
	// askAgain is when a program with children of its own gets the polite signal once more. A
	// worker of PHP drops one that it has queued when its request ends (zend_signal_deactivate
	// of PHP), and PHP would wait for it.
	askAgain = 2 * time.Second
)

// Process is one server of a [Bed]: a program in a process group of its own,
// with its output in a file. Its methods are safe for concurrent use, except
// that a Restart must not overlap with another or with Stop.
type Process struct {
	bed    *Bed
	name   string
	output string
	path   string
	env    []string       // in addition to ours
	stop   syscall.Signal // asks the program to end in order
	forks  bool           // the program has children of its own
	as     *account       // whom it runs as, with "/" as its directory; nil: us

	// ready returns once the program serves; it may give up on ctx and must
	// when the program has ended, as run.until does.
	ready func(ctx context.Context, r *run) error
	// conflict, if set, is called when the program's port was taken, or its memory
	// by a run before, before another try: it changes the port or lets time pass.
	conflict func(ctx context.Context)

	mu   sync.Mutex // guards all below
	args []string
	run  *run // nil before the first start
	over bool // the bed is closed: no further start
}

// Name returns what the process is called in errors, such as "redis-1".
func (p *Process) Name() string { return p.name }

// Output returns the path of the file that holds what the process wrote on
// stdout and stderr, over all its restarts.
func (p *Process) Output() string { return p.output }

// PID returns the process ID of the current or last run.
func (p *Process) PID() int { return p.current().pid }

// Done returns a channel that is closed when the current run has ended.
func (p *Process) Done() <-chan struct{} { return p.current().done }

// Tail returns the last lines of what the current run wrote, on one line,
// separated by " | ".
func (p *Process) Tail() string {
	r := p.current()
	if r == nil {
		return "" // its first start is still under way
	}
	return r.tail()
}

// Stop asks the process to end and waits; after stopLimit it is killed. It
// is an error if it had to be, if it exited with a status of its own (a race
// detector's 66, say), or if it had ended before without being asked. A
// process that was stopped, killed or waited for before is no error.
func (p *Process) Stop() error {
	r, asked := p.ask()
	if r == nil {
		return nil
	}
	if asked {
		<-r.done // a Kill or Stop may be under way elsewhere
		return nil
	}
	select {
	case <-r.done:
		return fmt.Errorf("%s ended by itself (%w); its output ends: %s", p.name, ending(r.err), r.tail())
	default:
	}
	// One that ends just now can't be signalled, and need not.
	_ = p.signal(r, p.stop)
	_ = p.signal(r, syscall.SIGCONT) // a paused one would not see the signal
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for ended := false; !ended; {
		select {
		case <-r.done:
			ended = true
		case <-again.C:
			if p.forks {
				_ = p.signal(r, p.stop)
			}
		case <-timer.C:
			_ = p.signal(r, syscall.SIGKILL)
			<-r.done
			return fmt.Errorf("stopping %s: it did not end within %v of %v and was killed", p.name, stopLimit, p.stop)
		}
	}
	p.bed.logf("%s: stopped", p.name)
	if !endedBy(r.err, p.stop) {
		return fmt.Errorf("stopping %s: %w; its output ends: %s", p.name, r.err, r.tail())
	}
	return nil
}

// Kill ends the process at once with SIGKILL, as a crash would, and waits.
func (p *Process) Kill() {
	r, _ := p.ask()
	_ = p.signal(r, syscall.SIGKILL) // one that has ended is as good
	<-r.done
	p.bed.logf("%s: killed", p.name)
}

// Wait waits until the process has ended by itself and returns its exit error,
// an *exec.ExitError, or nil for status 0. It returns the context's error if
// that ends first.
func (p *Process) Wait(ctx context.Context) error {
	r := p.current()
	select {
	case <-r.done:
		p.ask()
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end: %w", p.name, context.Cause(ctx))
	}
}

// Pause stops the process from running (SIGSTOP): its sockets stay open and
// take connections, but nothing is answered until Resume. It waits until the
// last thread has stopped: on a busy machine others run on for a while.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := awaitStopped(p.current().pid); err != nil {
		return fmt.Errorf("waiting until %s has stopped: %w", p.name, err)
	}
	return nil
}

// Resume lets a paused process run again.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Signal sends a signal to the process and what it forked. It is an error if
// the process has ended.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.signal(p.current(), s); err != nil {
		return fmt.Errorf("sending %v to %s: %w", s, p.name, err)
	}
	return nil
}

// Restart stops the process if it runs and starts it again, with the same data
// and, but for Envoy and ordergate with a port 0 in their configuration, on
// the same address. It returns when the server is ready; ctx bounds the start.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(); err != nil {
		return err
	}
	return p.start(ctx)
}

// launchOnFreePort is launch for a server whose port pick chooses: another process
// may take that before the server binds it.
func (b *Bed) launchOnFreePort(ctx context.Context, kind string, p *Process, pick func() error) error {
	p.conflict = func(ctx context.Context) {
		if err := pick(); err != nil {
			waitABit(ctx)
		}
	}
	if err := b.launch(ctx, kind, p); err != nil {
		return err
	}
	p.conflict = waitABit // clients know the address by now
	return nil
}

// launch adds the process to the bed and starts it. The context bounds the
// start only, which takes a minute at most.
func (b *Bed) launch(ctx context.Context, kind string, p *Process) error {
	if p.stop == 0 {
		p.stop = syscall.SIGTERM
	}
	if err := b.add(kind, p); err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		b.remove(p)
		return err
	}
	return nil
}

// start runs the program until it is ready, again if its port was taken.
func (p *Process) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		r, err := p.spawn()
		if err != nil {
			return fmt.Errorf("starting %s: %w", p.name, err)
		}
		err = p.ready(ctx, r)
		if err == nil {
			p.bed.logf("%s: started, pid %d, output in %s", p.name, r.pid, p.output)
			return nil
		}
		p.Kill()
		if !taken(r.text()) || p.conflict == nil || ctx.Err() != nil {
			return fmt.Errorf("starting %s: %w", p.name, err)
		}
		p.conflict(ctx)
	}
}

// taken tells from what a server wrote that another has what it wants for
// itself: its port, or the shared memory that the children of a killed
// PostgreSQL have for a moment yet.
func taken(output string) bool {
	return strings.Contains(output, "ddress already in use") || // all servers say it so
		strings.Contains(output, ") is still in use")
}

// spawn starts the program and makes it the current run.
func (p *Process) spawn() (*run, error) {
	out, err := os.OpenFile(p.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own copy
	from, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, errClosed
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.bed.dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = sysProcAttr()
	p.as.apply(cmd)
	var dog *watchdog
	if p.forks {
		if dog, err = newWatchdog(); err != nil {
			return nil, err
		}
	}
	r := &run{p: p, from: from, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the parent-death signal when the thread that forked
		// ends, not the process. So that thread is kept for as long as the
		// child lives; the runtime would be free to end any other.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err != nil {
			dog.end()
			started <- err
			return
		}
		dog.watch(cmd.Process.Pid)
		started <- nil
		r.err = cmd.Wait()
		// The leader has ended; what it forked (PHP's workers) must not stay.
		// Its number can't belong to a new group yet: the kernel hands numbers
		// out in a circle.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		dog.end()
		close(r.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	r.pid = cmd.Process.Pid
	p.run = r
	return r, nil
}

// current returns the current or last run.
func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// finish stops the process, or one that is just being started, for good.
func (p *Process) finish() error {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	return p.Stop()
}

// ask marks the current run, nil if there is none, as wanted to end and tells
// whether it was before.
func (p *Process) ask() (r *run, before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil, false
	}
	before = p.run.asked
	p.run.asked = true
	return p.run, before
}

// signal sends to the whole group, unless the leader has ended.
func (p *Process) signal(r *run, s syscall.Signal) error {
	select {
	case <-r.done:
		return os.ErrProcessDone
	default:
		return syscall.Kill(-r.pid, s)
	}
}

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// connections is how many requests are under way: one on each.
const connections = 64

// loadScript is what wrk runs.
//
//go:embed load.lua
var loadScript string

// browserHeaders are those of a browser's script, for load.headers. Without them wrk
// sends Host alone.
var browserHeaders = []string{
	"accept: application/json",
	"accept-encoding: gzip, deflate, br",
	"accept-language: en-GB,en;q=0.9",
	"authorization: Bearer 4f1c2a6e0b9d4c1f8a7e5d3b2c1a0f9e",
	"cookie: session=8c6b1f0de2a94d7f; theme=dark",
	"user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
}

// load is a job for wrk: requests about one order after the other.
type load struct {
	method string
	first  int64
	count  int64  // of orders, until the first comes again
	suffix string // of the path
	body   string // JSON; "" for none

	headers []string // besides
}

// loaded is what wrk saw.
type loaded struct {
	Requests                      int
	Micros                        int64
	Over399                       int     // answers
	Connect, Read, Write, Timeout int     // errors
	P50, P99                      float64 // µs
}

// run makes requests for so long. It is an error if one of them got no answer, or
// if not all answers were errors, or successes, as the status is.
func (l load) run(ctx context.Context, script, url string, length time.Duration, status int) (loaded, error) {
	// wrk knows whole seconds only, so it is told to stop, which it does in order. The
	// rest is for one that is not told, since nothing was answered or we ended.
	most := int(length/time.Second) + 10
	args := []string{"-t1", "-c" + strconv.Itoa(connections), "-d" + strconv.Itoa(most) + "s", "-s", script}
	for _, h := range l.headers {
		args = append(args, "-H", h)
	}
	if l.body != "" {
		args = append(args, "-H", "content-type: application/json")
	}
	args = append(args, url, "--", l.method, strconv.FormatInt(l.first, 10), strconv.FormatInt(l.count, 10),
		l.suffix, l.body, strconv.Itoa(connections))
	out, err := runFor(ctx, exec.CommandContext(ctx, "wrk", args...), length)
	if err != nil {
		return loaded{}, fmt.Errorf("running wrk: %w", err)
	}
	return parseLoad(out, status)
}

// runFor runs a program that ends in order when it is interrupted, and interrupts it
// a while after it has written "begun" on stderr. It returns what the program wrote on
// stdout.
func runFor(ctx context.Context, cmd *exec.Cmd, length time.Duration) (string, error) {
	var out bytes.Buffer
	notes := &notes{begun: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &out, notes
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for us
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	begun := notes.begun
	var poll, enough <-chan time.Time
	for {
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			} else if err != nil {
				err = fmt.Errorf("%w: %s", err, oneLine(out.String()+notes.text.String()))
			}
			return out.String(), err
		case <-begun:
			begun = nil
			ticker := time.NewTicker(time.Millisecond)
			defer ticker.Stop()
			poll = ticker.C
		case <-poll:
			// An interruption that comes before the program expects one would just end it.
			if catches(cmd.Process.Pid, syscall.SIGINT) {
				poll = nil
				timer := time.NewTimer(length)
				defer timer.Stop()
				enough = timer.C
			}
		case <-enough:
			_ = cmd.Process.Signal(syscall.SIGINT) // one that has ended is as good
		}
	}
}

// notes keeps what a program writes on stderr, which may be read when it has ended.
type notes struct {
	text  bytes.Buffer
	said  bool
	begun chan struct{} // closed when it says so
}

// Write implements io.Writer.
func (n *notes) Write(p []byte) (int, error) {
	n.text.Write(p)
	if !n.said && bytes.Contains(n.text.Bytes(), []byte("begun\n")) {
		n.said = true
		close(n.begun)
	}
	return len(p), nil
}

// catches tells whether a process has a handler for a signal, by the line SigCgt of
// proc_pid_status(5), a mask in hexadecimal.
func catches(pid int, s syscall.Signal) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // if it has ended: no
	_, rest, _ := strings.Cut(string(text), "\nSigCgt:\t")
	mask, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(mask, 16, 64)
	return err == nil && n&(1<<(s-1)) != 0
}

// parseLoad reads the line that load.lua prints at the end.
func parseLoad(out string, status int) (l loaded, err error) {
	_, line, found := strings.Cut(out, "\n{")
	if !found {
		return l, fmt.Errorf("reading wrk's summary: load.lua's line is not in: %s", oneLine(out))
	}
	if err := json.Unmarshal([]byte("{"+line), &l); err != nil {
		return l, fmt.Errorf("reading wrk's summary: %w: %s", err, oneLine(out))
	}
	switch {
	case l.Requests == 0 || l.Micros == 0:
		return l, errors.New("no request was answered")
	case l.Connect+l.Read+l.Write+l.Timeout > 0:
		return l, fmt.Errorf("besides %d answers there were errors: %d at connecting, %d at reading, %d at writing, %d too late",
			l.Requests, l.Connect, l.Read, l.Write, l.Timeout)
	case status <= 399 && l.Over399 > 0:
		return l, fmt.Errorf("%d of %d answers have a status of 400 or more, but %d is due", l.Over399, l.Requests, status)
	case status > 399 && l.Over399 < l.Requests:
		return l, fmt.Errorf("%d of %d answers have a status below 400, but %d is due", l.Requests-l.Over399, l.Requests, status)
	}
	return l, nil
}

// oneLine makes the end of a program's output fit for an error.
func oneLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

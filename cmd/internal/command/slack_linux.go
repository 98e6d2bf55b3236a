package command

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late the kernel may wake a thread that sleeps: see prctl(2), PR_SET_TIMERSLACK.
//
// Go's monitor (sysmon) wakes up with the first work after a pause, and then every 20 µs for a while. A
// sidecar pauses after every few messages: with the default of 50 µs, the monitor takes a fifth of its CPU
// under load, and a third with few callers (tests/bench/gateway). Go's timers are so late, too.
const timerSlack = time.Millisecond

// slackIsSet is the variable of a process that has executed itself.
const slackIsSet = "TIMER_SLACK_IS_SET"

// setTimerSlack executes the program once more, with the timer slack in all of its threads: each takes it from
// the one that starts it, and the monitor is started before main. An error only costs speed.
func setTimerSlack() {
	if _, isSet := os.LookupEnv(slackIsSet); isSet {
		_ = os.Unsetenv(slackIsSet)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if file, err := os.Executable(); err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) == nil {
		_ = syscall.Exec(file, os.Args, append(os.Environ(), slackIsSet+"=")) // it returns if it fails
	}
}

package testbed

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr puts a child into a process group of its own, so that all of it
// can be signalled, and has the kernel kill it when its parent dies.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// capDACOverride is CAP_DAC_OVERRIDE of linux/capability.h. CAP_DAC_READ_SEARCH
// would do, but root in a container has only the former.
const capDACOverride = 1

// passEverywhere lets a child that is not root enter directories of ours.
func passEverywhere(attr *syscall.SysProcAttr) { attr.AmbientCaps = []uintptr{capDACOverride} }

// awaitStopped waits until all threads of a child have stopped, and leaves its
// exit to others.
func awaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

package testbed

import "syscall"

// sysProcAttr puts a child into a process group of its own, so that all of it
// can be signalled, and has the kernel kill it when its parent dies.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

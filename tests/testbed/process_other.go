//go:build !linux

package testbed

import "syscall"

// sysProcAttr puts a child into a process group of its own, so that all of it
// can be signalled. A child outlives a killed parent here: only Linux can tell
// the kernel to prevent that.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// passEverywhere would let a child that is not root enter directories of ours:
// only Linux can. Elsewhere the testbed's directory has to let others pass.
func passEverywhere(*syscall.SysProcAttr) {}

// awaitStopped does not wait: only Linux stops one thread after the other.
func awaitStopped(int) error { return nil }

package testbed_test

import "syscall"

func threadID() int { return syscall.Gettid() }

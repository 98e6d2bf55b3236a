//go:build !linux

package testbed_test

func threadID() int { return 0 }

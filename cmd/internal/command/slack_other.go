//go:build !linux

package command

func setTimerSlack() {}

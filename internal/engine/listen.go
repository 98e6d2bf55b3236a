package engine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Listen opens "host:port" or "unix:/path". A socket file that nobody listens on
// any more is what a killed process left, and is replaced.
func Listen(addr string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(addr, "unix:")
	if !isUnix {
		return net.Listen("tcp", addr)
	}
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if conn, dialErr := net.DialTimeout("unix", path, time.Second); dialErr == nil {
		_ = conn.Close()
		return nil, err
	}
	if info, statErr := os.Lstat(path); statErr != nil || info.Mode().Type() != os.ModeSocket {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("removing a stale socket: %w", err)
	}
	return net.Listen("unix", path)
}

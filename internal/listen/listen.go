// Package listen opens the addresses on which ordergate serves: TCP, with TLS where it is
// configured, and unix sockets.
//
// Start with [Listen], and wrap its result with [WithTLS].
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/runbook"
)

// Listen opens "host:port" or "unix:/path". A unix socket gets the given mode. Listen
// replaces the socket file of a process that has ended, and keeps that of a running one.
func Listen(addr string, mode fs.FileMode) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(addr, "unix:")
	if !isUnix {
		return net.Listen("tcp", addr)
	}
	l, err := listenUnix(path, mode)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if staleErr := removeStale(path); staleErr != nil {
		return nil, fmt.Errorf("%w: %w", err, staleErr)
	}
	return listenUnix(path, mode)
}

// listenUnix binds a socket file with its mode from the start: on Linux the file gets the
// mode of the socket, less the umask. The chmod afterwards can only add to it.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	restrict := func(_, _ string, c syscall.RawConn) error {
		// On systems whose sockets have no mode, the chmod below sets it.
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), uint32(mode.Perm())) })
	}
	l, err := (&net.ListenConfig{Control: restrict}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode.Perm()); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// removeStale removes a socket file if no process listens there. Only a refused connection
// proves it: a process listens behind a full queue or a missing permission. removeStale
// returns nil only if the file is gone.
func removeStale(path string) error {
	before, err := os.Lstat(path)
	if err != nil || before.Mode().Type() != os.ModeSocket {
		return err
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("a process listens at %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	if now, err := os.Lstat(path); err != nil || !os.SameFile(before, now) {
		return err // another process has replaced it
	}
	return os.Remove(path)
}

// WithTLS returns a listener that speaks TLS as configured, with the protocols in order of
// preference. It returns listeners other than TCP as they are. It reads the files now, and
// again for each connection. While the files cannot be read, the last good ones stay in use.
func WithTLS(l net.Listener, t *config.ListenTLS, protocols []string, log *slog.Logger) (net.Listener, error) {
	if t == nil || l.Addr().Network() != "tcp" {
		return l, nil
	}
	first, err := t.Config()
	if err != nil {
		return nil, err
	}
	first.NextProtos = protocols
	var last atomic.Pointer[tls.Config]
	last.Store(first)
	trouble := recurring.New(log, slog.LevelError, "the files of listen.tls cannot be read, the earlier ones stay in use", "the files of listen.tls can be read again",
		runbook.MutualTLS.Do("repair the files that error names; ordergate tries again"))
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now, err := t.Config()
			if err != nil {
				trouble.Note("error", err)
				return last.Load(), nil
			}
			now.NextProtos = protocols
			last.Store(now)
			return now, nil
		},
	}), nil
}

// Package systemd takes sockets from systemd, and reports to it that ordergate serves, reloads,
// stops and lives. Where systemd did not start the process, its functions do nothing.
//
// The protocols are those of sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3).
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Sockets are the listening sockets that systemd passed, which it keeps open between two runs of
// the service.
type Sockets struct{ left []net.Listener }

// TakeSockets returns the passed sockets. A second call returns none.
func TakeSockets() (*Sockets, error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("the sockets of systemd: %w", err)
	}
	s := &Sockets{}
	for _, l := range passed {
		if l == nil { // no stream socket
			err = errors.New("the sockets of systemd: one of them is no stream socket: use ListenStream")
			continue
		}
		s.left = append(s.left, l)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Take returns the socket of an address, "host:port" or "unix:/path"; nil: there is none. Closing it
// leaves a unix socket's file alone.
func (s *Sockets) Take(addr string) net.Listener {
	for i, l := range s.left {
		if sameAddress(l.Addr(), addr) {
			s.left = append(s.left[:i], s.left[i+1:]...)
			return l
		}
	}
	return nil
}

// Unused returns an error that names a socket that was not taken.
func (s *Sockets) Unused() error {
	if len(s.left) == 0 {
		return nil
	}
	a := s.left[0].Addr()
	name := a.String()
	if a.Network() == "unix" {
		name = "unix:" + name
	}
	return fmt.Errorf("systemd passed a socket at %s, which is none of the addresses of listen: change ListenStream of the socket unit, or the file", name)
}

// Close closes the sockets that were not taken.
func (s *Sockets) Close() {
	for _, l := range s.left {
		_ = l.Close()
	}
	s.left = nil
}

// sameAddress reports whether a socket is that of a configured address.
func sameAddress(a net.Addr, addr string) bool {
	if path, isUnix := strings.CutPrefix(addr, "unix:"); isUnix {
		return a.Network() == "unix" && a.String() == path
	}
	if a.Network() != "tcp" {
		return false
	}
	want, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return false
	}
	got, ok := a.(*net.TCPAddr)
	unspecified := func(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }
	return ok && got.Port == want.Port && (got.IP.Equal(want.IP) || unspecified(got.IP) && unspecified(want.IP))
}

// Serving reports that all listeners serve.
func Serving() { notify(daemon.SdNotifyReady, status("serving")) }

// Reloading reports that a reload begins. The caller calls done when it has ended.
func Reloading() (done func()) {
	notify(daemon.SdNotifyReloading)
	return func() { notify(daemon.SdNotifyReady) }
}

// Stopping reports that the process is about to end.
func Stopping() { notify(daemon.SdNotifyStopping, status("stopping: running calls may finish")) }

// Failed reports why the process ends: the first line of err becomes the unit's status.
func Failed(err error) {
	first, _, _ := strings.Cut(err.Error(), "\n")
	notify(status(first))
}

func status(text string) string { return "STATUS=" + strings.ToValidUTF8(text, "") }

// notify sends lines in one message. Without systemd it does nothing; nobody can be told of an error.
func notify(lines ...string) { _, _ = daemon.SdNotify(false, strings.Join(lines, "\n")) }

// Watchdog reports until ctx ends that the process lives, as often as systemd asks for it
// (WatchdogSec). It does so after each successful call of alive, which gets a third of that
// interval. Without a watchdog it returns at once.
func Watchdog(ctx context.Context, alive func(context.Context) error, failed func(error)) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		return
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, interval/3)
		err := alive(within)
		cancel()
		if err == nil {
			notify(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

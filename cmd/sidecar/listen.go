package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ordergate/ordergate/internal/admin"
)

// listen opens "host:port" or "unix:/path". A socket file that nobody listens on
// any more is what a killed process left, and is replaced.
func listen(addr string) (net.Listener, error) {
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

// conditions tells what readiness depends on. Redis is told of but not waited
// for: without it lookups still go on, and settlements are refused by name.
func (f *faces) conditions(m *machine) []admin.Condition {
	list := []admin.Condition{{Name: "serving", Ready: !f.draining.Load()}}
	if f.draining.Load() {
		list[0].Reason = "stopping"
	}
	for name, unit := range m.filters {
		state, reason := unit.filter.State()
		list = append(list, admin.Condition{Name: "filter " + name, Ready: state != "loading", Reason: reason})
	}
	for _, use := range slices.SortedFunc(maps.Keys(m.lockers), func(a, b lockUse) int { return strings.Compare(a.String(), b.String()) }) {
		list = append(list, m.lockers[use].condition())
	}
	if m.redis != nil {
		c := admin.Condition{Name: "redis", Ready: true}
		ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
		defer cancel()
		if err := m.redis.Ping(ctx).Err(); err != nil {
			c.Reason = "not reachable, settlements are refused: " + err.Error()
		}
		list = append(list, c)
	}
	return list
}

package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxRedisPort leaves room for the cluster bus, which is 10000 above.
const maxRedisPort = 65535 - 10000

// Redis is a running redis-server that keeps nothing on disk.
type Redis struct {
	*Process
	addr string
}

// Redis starts a redis-server on a free port. The arguments, such as
// "--maxmemory", "1mb" or "--requirepass", "secret", come after ours and win.
// It returns a [*MissingError] if redis-server is not installed. The context
// bounds the start.
func (b *Bed) Redis(ctx context.Context, args ...string) (*Redis, error) {
	path, err := lookPath("redis-server", "redis")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "redis-")
	if err != nil {
		return nil, fmt.Errorf("starting redis: %w", err)
	}
	r := &Redis{}
	p := &Process{path: path}
	pick := func() error {
		port, err := freePort(maxRedisPort)
		if err != nil {
			return err
		}
		r.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		p.args = append([]string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
			"--save", "", "--appendonly", "no", "--daemonize", "no",
		}, args...)
		return nil
	}
	if err := pick(); err != nil {
		return nil, fmt.Errorf("starting redis: %w", err)
	}
	password := ""
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		password = args[i+1]
	}
	p.ready = func(ctx context.Context, run *run) error {
		return run.until(ctx, func() error { return answersAs(ctx, r.addr, password, run.pid) })
	}
	// Another process may take the port between choosing and binding it.
	p.conflict = func(ctx context.Context) {
		if err := pick(); err != nil {
			waitABit(ctx)
		}
	}
	if err := b.launch(ctx, "redis", p); err != nil {
		return nil, err
	}
	p.conflict = waitABit // clients know the address by now
	r.Process = p
	return r, nil
}

// Addr returns the server's "host:port". It stays the same over a restart.
func (r *Redis) Addr() string { return r.addr }

// answersAs asks the Redis at addr for its process ID. One that is not pid is
// somebody else's, who took the port before ours could: ours is about to end.
func answersAs(ctx context.Context, addr, password string, pid int) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	ask := "INFO server\r\nQUIT\r\n"
	if password != "" {
		ask = fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n%s", len(password), password, ask)
	}
	if _, err := io.WriteString(conn, ask); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "-") {
			return fmt.Errorf("%s answers %s", addr, line)
		}
		if got, found := strings.CutPrefix(line, "process_id:"); found {
			if got != strconv.Itoa(pid) {
				return fmt.Errorf("%s is the Redis of process %s", addr, got)
			}
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%s does not tell its process ID", addr), lines.Err())
}

// freePort asks the kernel for a port of 127.0.0.1 that is free just now, at
// most limit.
func freePort(limit int) (int, error) {
	var held []net.Listener // so that the next try gets another one
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("choosing a port: %w", err)
		}
		held = append(held, l)
		if port := l.Addr().(*net.TCPAddr).Port; port <= limit {
			return port, nil
		}
	}
	return 0, fmt.Errorf("choosing a port: none free up to %d", limit)
}

// waitABit lets whoever holds a port give it back.
func waitABit(ctx context.Context) {
	timer := time.NewTimer(5 * pollEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

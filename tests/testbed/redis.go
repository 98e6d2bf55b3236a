package testbed

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// busOffset is how far above its port a cluster node has its bus.
	busOffset    = 10000
	maxRedisPort = 65535 - busOffset
)

// User and Password may do everything on every Redis and Sentinel of a bed,
// whatever the arguments say of other users: so the bed gets on where a test
// locks everybody else out.
const (
	User     = "testbed"
	Password = "testbed"
)

// userRules is what [User] may do.
var userRules = []string{"on", ">" + Password, "~*", "&*", "+@all"}

// Redis is a running redis-server that keeps nothing on disk, or a Sentinel.
type Redis struct {
	*Process
	addr  string
	certs *Certificates // nil without TLS
}

// Redis starts a redis-server on a free port. The arguments, such as
// "--maxmemory", "1mb" or "--requirepass", "secret", come after ours and win.
// Those of [Certificates.Args] make it serve TLS and nothing else. It returns a
// [*MissingError] if redis-server is not installed. The context bounds the start.
func (b *Bed) Redis(ctx context.Context, args ...string) (*Redis, error) {
	return b.redisServer(ctx, redisRole{kind: "redis"}, args)
}

// RedisTLS starts a redis-server that serves TLS only, with the bed's
// certificates, and asks clients for one of them; see [Bed.Redis].
func (b *Bed) RedisTLS(ctx context.Context, args ...string) (*Redis, error) {
	certs, err := b.Certificates()
	if err != nil {
		return nil, err
	}
	return b.Redis(ctx, append(certs.Args(), args...)...)
}

// Addr returns the server's "host:port". It stays the same over a restart.
func (r *Redis) Addr() string { return r.addr }

// TLS reports whether the server serves TLS, with the bed's certificates, and
// nothing else.
func (r *Redis) TLS() bool { return r.certs != nil }

// redisRole is how one redis-server differs from another.
type redisRole struct {
	kind string   // in the names of processes
	bus  bool     // needs the port of a cluster's bus too
	args []string // in addition to those of every server
	// file, if set, returns what is written to a configuration file that is the
	// server's own to change.
	file func(dir string, port int) string
}

// LacksError is returned where a server of make matrix has not what a test needs.
type LacksError struct{ Server, What string }

// Error says which server lacks what.
func (e *LacksError) Error() string { return e.Server + " has no " + e.What }

// lacks returns a [*LacksError] if the server is one of the matrix, by its folder in .cache, that has
// no such role. The system's own has all of them.
func lacks(path string, cluster, tls bool) error {
	server := filepath.Base(filepath.Dir(path))
	old := strings.HasPrefix(server, "redis-6.2.")
	switch {
	case cluster && old:
		return &LacksError{server, "sharded channels: ordergate needs Redis 7.0 in a cluster"}
	case tls && (old || strings.HasPrefix(server, "redis-8.") || strings.HasPrefix(server, "valkey-")):
		return &LacksError{server, "TLS: it was built without"}
	}
	return nil
}

// redisServer starts a redis-server in one role.
func (b *Bed) redisServer(ctx context.Context, role redisRole, args []string) (*Redis, error) {
	path, err := lookPath("redis-server", "redis")
	if err != nil {
		return nil, err
	}
	if err := lacks(path, role.bus, slices.Contains(args, tlsCertFlag)); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, role.kind+"-")
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", role.kind, err)
	}
	r := &Redis{}
	if slices.Contains(args, tlsCertFlag) {
		if r.certs, err = b.Certificates(); err != nil {
			return nil, err
		}
	}
	p := &Process{path: path}
	pick := func() (err error) {
		p.args, r.addr, err = role.commandLine(dir, r.certs != nil, args)
		return err
	}
	if err := pick(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", role.kind, err)
	}
	p.ready = func(ctx context.Context, run *run) error {
		return run.until(ctx, func() error { return r.answersAs(ctx, run.pid) })
	}
	r.Process = p
	if err := b.launchOnFreePort(ctx, role.kind, p, pick); err != nil {
		return nil, err
	}
	return r, nil
}

// commandLine chooses a port and returns the arguments and the address.
func (role redisRole) commandLine(dir string, tls bool, args []string) (line []string, addr string, err error) {
	port, err := freePort(maxRedisPort)
	for role.bus && err == nil && !isFree(port+busOffset) {
		port, err = freePort(maxRedisPort)
	}
	if err != nil {
		return nil, "", err
	}
	if role.file != nil {
		file := dir + "/redis.conf"
		if err := os.WriteFile(file, []byte(role.file(dir, port)), 0o600); err != nil {
			return nil, "", err
		}
		line = append(line, file)
	}
	line = append(line, role.args...)
	plain, encrypted := port, 0
	if tls {
		plain, encrypted = 0, port
		line = append(line, "--tls-port", strconv.Itoa(encrypted))
	}
	line = append(line, "--port", strconv.Itoa(plain), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no")
	if role.file == nil { // a Sentinel has no data, and keeps its users in its file
		line = append(line, "--save", "", "--appendonly", "no", "--user", User)
		line = append(line, userRules...)
	}
	return append(line, args...), net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

// answersAs asks the Redis for its process ID. One that is not pid is somebody
// else's, who took the port before ours could: ours is about to end.
func (r *Redis) answersAs(ctx context.Context, pid int) error {
	got, err := r.info(ctx, "server", "process_id")
	if err == nil && got != strconv.Itoa(pid) {
		err = fmt.Errorf("%s is the Redis of process %s", r.addr, got)
	}
	return err
}

// info returns one field of INFO.
func (r *Redis) info(ctx context.Context, section, field string) (string, error) {
	text, err := r.askText(ctx, "INFO", section)
	if err != nil {
		return "", err
	}
	return r.infoField(text, field)
}

func (r *Redis) infoField(text, field string) (string, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s does not tell its %s", r.addr, field)
}

// running tells whether the process has not ended. A paused one runs.
func (r *Redis) running() bool {
	select {
	case <-r.Done():
		return false
	default:
		return true
	}
}

// pollTopology is slower than the poll of a single server: a check of six servers
// with TLS would keep a small machine from doing what is waited for.
const pollTopology = 5 * pollEvery

// poll calls check again and again until it returns nil or the context ends, and
// names the last error then.
func poll(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(pollTopology)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-ticker.C:
		}
	}
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

// isFree tells whether a port of 127.0.0.1 can be bound just now.
func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
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

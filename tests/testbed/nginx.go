package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// anyPort is the listener of a configuration that gets a free port: nginx itself
// takes no port 0.
const anyPort = "listen 127.0.0.1:0;"

// Nginx is a running nginx.
type Nginx struct {
	*Process
	addr string
}

// Nginx starts nginx with a whole configuration in which the one
// "listen 127.0.0.1:0;" gets a free port. The configuration leaves out daemon, pid,
// user and the paths of temporary files, which are given here. It returns a
// [*MissingError] if nginx is not installed. The context bounds the start.
func (b *Bed) Nginx(ctx context.Context, config string) (*Nginx, error) {
	path, err := nginxPath()
	if err != nil {
		return nil, err
	}
	if n := strings.Count(config, anyPort); n != 1 {
		return nil, fmt.Errorf("starting nginx: the configuration has %q %d times: it has to be there once", anyPort, n)
	}
	dir, err := os.MkdirTemp(b.dir, "nginx-")
	if err != nil {
		return nil, fmt.Errorf("starting nginx: %w", err)
	}
	file, pidFile := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "nginx.pid")
	n := &Nginx{}
	pick := func() error {
		port, err := freePort(65535)
		if err != nil {
			return err
		}
		n.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		return os.WriteFile(file, []byte(nginxConfig(config, n.addr)), 0o600)
	}
	if err := pick(); err != nil {
		return nil, fmt.Errorf("starting nginx: %w", err)
	}
	// With a master process: without one, a SIGTERM that comes just before nginx
	// waits for events is seen at the next event only.
	directives := "daemon off; pid " + pidFile + ";"
	if os.Geteuid() == 0 {
		directives += " user root;" // another could not write below a directory of a test's
	}
	p := &Process{
		path: path, forks: true,
		args: []string{"-p", dir, "-c", file, "-e", "stderr", "-g", directives},
	}
	// nginx writes the file once it listens, and the one of a killed run has
	// another number in it.
	p.ready = func(ctx context.Context, r *run) error {
		return r.until(ctx, func() error {
			text, err := os.ReadFile(pidFile)
			if err == nil && strings.TrimSpace(string(text)) != strconv.Itoa(r.pid) {
				err = errors.New("it does not listen yet")
			}
			return err
		})
	}
	if err := b.launchOnFreePort(ctx, "nginx", p, pick); err != nil {
		return nil, err
	}
	n.Process = p
	return n, nil
}

// Addr returns the server's "host:port". It stays the same over a restart.
func (n *Nginx) Addr() string { return n.addr }

// nginxConfig completes a configuration. Debian's paths of temporary files are
// for root only.
func nginxConfig(config, addr string) string {
	var paths strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&paths, " %s_temp_path %[1]s;", kind)
	}
	return strings.NewReplacer(
		anyPort, "listen "+addr+";",
		"\nhttp {", "\nhttp {"+paths.String(),
	).Replace(config)
}

// nginxPath finds nginx also where Debian has it, which is not on the PATH of
// every user.
func nginxPath() (string, error) {
	path, err := lookPath("nginx", "nginx")
	if err == nil {
		return path, nil
	}
	if path, ok := exec.LookPath("/usr/sbin/nginx"); ok == nil {
		return path, nil
	}
	return "", err
}

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Caddy is a running Caddy.
type Caddy struct {
	*Process
	addr string
}

// Caddy starts Caddy with a Caddyfile whose one site is "http://:0", which gets a free port. It returns
// a [*MissingError] if Caddy was not fetched. The context bounds the start.
func (b *Bed) Caddy(ctx context.Context, config string) (*Caddy, error) {
	const anySite = "\nhttp://:0 {"
	path, err := lookPath("caddy", "caddy")
	if err != nil {
		path = filepath.Join(b.root, ".cache", "bin", "caddy")
		if _, missing := os.Stat(path); missing != nil {
			return nil, err
		}
	}
	if n := strings.Count(config, anySite); n != 1 {
		return nil, fmt.Errorf("starting caddy: the configuration has %q %d times: it has to be there once", anySite, n)
	}
	dir, err := os.MkdirTemp(b.dir, "caddy-")
	if err != nil {
		return nil, fmt.Errorf("starting caddy: %w", err)
	}
	file := filepath.Join(dir, "Caddyfile")
	c := &Caddy{}
	pick := func() error {
		port, err := freePort(65535)
		if err != nil {
			return err
		}
		text := strconv.Itoa(port)
		c.addr = net.JoinHostPort("127.0.0.1", text)
		return os.WriteFile(file, []byte("{\n\tadmin off\n}\n"+strings.Replace(config, anySite, "\nhttp://:"+text+" {", 1)), 0o600)
	}
	if err := pick(); err != nil {
		return nil, fmt.Errorf("starting caddy: %w", err)
	}
	p := &Process{
		path: path, args: []string{"run", "--adapter", "caddyfile", "--config", file},
		env: []string{"HOME=" + dir},
	}
	p.ready = func(ctx context.Context, r *run) error {
		return r.until(ctx, func() error {
			if !strings.Contains(r.text(), "serving initial configuration") {
				return errors.New("it does not listen yet")
			}
			return nil
		})
	}
	if err := b.launchOnFreePort(ctx, "caddy", p, pick); err != nil {
		return nil, err
	}
	c.Process = p
	return c, nil
}

// Addr returns the server's "host:port". It stays the same over a restart.
func (c *Caddy) Addr() string { return c.addr }

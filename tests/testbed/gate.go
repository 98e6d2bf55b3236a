package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// listening matches the line that ordergate logs for every listener, once it
// is bound; slog puts the address in quotes where it has to.
var listening = regexp.MustCompile(`(?m)\bmsg=listening\b.* name=(\S+) addr="?([^\s"]+)`)

// Gate is a running ordergate.
type Gate struct {
	*Process
	config string
}

// Gate runs "serve" of an ordergate binary, as made by [Bed.Build], with a
// configuration in YAML, and waits until its /readyz says so. Of the extras, flags
// "--name=value" are added to the command line and variables "KEY=value" to the
// environment. Without a flag it stops at once, with --drain-delay=0s. Ports in the
// configuration may be 0. The context bounds the start.
func (b *Bed) Gate(ctx context.Context, binary, config string, extras ...string) (*Gate, error) {
	return b.gate(ctx, binary, config, extras, func(ctx context.Context, r *run) error {
		return r.until(ctx, func() error { return readyz(ctx, r) })
	})
}

// GateUnready is Gate without the wait for /readyz: for one that has no admin
// listener, that can't be ready (its Redis is away), or that is to refuse its
// configuration. Follow it with [Gate.Addr], [Gate.WaitReady] or
// [Process.Wait].
func (b *Bed) GateUnready(ctx context.Context, binary, config string, extras ...string) (*Gate, error) {
	return b.gate(ctx, binary, config, extras, func(context.Context, *run) error { return nil })
}

func (b *Bed) gate(ctx context.Context, binary, config string, extras []string, ready func(context.Context, *run) error) (*Gate, error) {
	file, err := b.tempFile("ordergate-*.yaml", config)
	if err != nil {
		return nil, fmt.Errorf("starting ordergate: %w", err)
	}
	binary, err = filepath.Abs(binary)
	if err != nil {
		return nil, fmt.Errorf("starting ordergate: %w", err)
	}
	p := &Process{path: binary, args: []string{"serve", "--config", file, "--drain-delay=0s"}, ready: ready}
	for _, extra := range extras {
		if strings.HasPrefix(extra, "--") {
			p.args = append(p.args, extra)
		} else {
			p.env = append(p.env, extra)
		}
	}
	if err := b.launch(ctx, "ordergate", p); err != nil {
		return nil, err
	}
	return &Gate{Process: p, config: file}, nil
}

// Addr returns the address of the listener that ordergate calls name, such as
// "authz" or "admin", as "host:port" or "unix:/path". It waits for the log
// line that has it.
func (g *Gate) Addr(ctx context.Context, name string) (addr string, err error) {
	r := g.current()
	err = r.until(ctx, func() (err error) {
		addr, err = r.listener(name)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("finding the address of %s: %w", g.name, err)
	}
	return addr, nil
}

// WaitReady waits until ordergate's /readyz answers 200.
func (g *Gate) WaitReady(ctx context.Context) error {
	r := g.current()
	if err := r.until(ctx, func() error { return readyz(ctx, r) }); err != nil {
		return fmt.Errorf("waiting for %s to be ready: %w", g.name, err)
	}
	return nil
}

// ConfigFile returns the path of the configuration that ordergate runs with.
func (g *Gate) ConfigFile() string { return g.config }

// WriteConfig replaces the configuration by a rename, as an editor or a
// ConfigMap would. It does not wait for ordergate to see it.
func (g *Gate) WriteConfig(config string) error {
	file, err := g.bed.tempFile("ordergate-*.new", config)
	if err != nil {
		return fmt.Errorf("changing the configuration of %s: %w", g.name, err)
	}
	if err := os.Rename(file, g.config); err != nil {
		return fmt.Errorf("changing the configuration of %s: %w", g.name, err)
	}
	return nil
}

// listener finds a listener's address in the output of this run.
func (r *run) listener(name string) (string, error) {
	if addr, ok := r.addrs.Load(name); ok {
		return addr.(string), nil
	}
	for _, m := range listening.FindAllStringSubmatch(r.text(), -1) {
		if m[1] == name {
			r.addrs.Store(name, m[2])
			return m[2], nil
		}
	}
	return "", fmt.Errorf("it has not said that it listens for %s", name)
}

func readyz(ctx context.Context, r *run) error {
	addr, err := r.listener("admin")
	if err != nil {
		return err
	}
	status, body, err := get(ctx, "http://"+addr+"/readyz")
	if err != nil {
		return err
	}
	if status != 200 {
		return fmt.Errorf("its /readyz answers %d: %s", status, strings.TrimSpace(body))
	}
	return nil
}

package testbed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// Program is a running program of a test's own.
type Program struct{ *Process }

// Program runs a binary, as made by [Bed.Build], and waits until it has logged, as
// ordergate does, that it listens. It has to end in order on SIGTERM. The context
// bounds the start.
func (b *Bed) Program(ctx context.Context, binary string, args ...string) (*Program, error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	p := &Process{path: path, args: args}
	p.ready = func(ctx context.Context, r *run) error {
		return r.until(ctx, func() error {
			if !listening.MatchString(r.text()) {
				return errors.New("it has not said that it listens")
			}
			return nil
		})
	}
	if err := b.launch(ctx, filepath.Base(path), p); err != nil {
		return nil, err
	}
	return &Program{p}, nil
}

// Addr returns the address of the listener that the program calls name.
func (p *Program) Addr(name string) (string, error) {
	addr, err := p.current().listener(name)
	if err != nil {
		return "", fmt.Errorf("finding the address of %s: %w", p.name, err)
	}
	return addr, nil
}

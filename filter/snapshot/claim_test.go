package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.snap")
	first, err := NewClaim(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewClaim(path); err == nil || !strings.Contains(err.Error(), "another process") || !strings.Contains(err.Error(), path) {
		t.Errorf("a second claim: %v", err)
	}
	// It is not in the way of the one who has it.
	if err := Write(t.Context(), path, testHeader(), nil); err != nil {
		t.Error(err)
	}
	other, err := NewClaim(path + "2")
	if err != nil {
		t.Fatal("another path:", err)
	}
	other.Release()
	first.Release()
	again, err := NewClaim(path)
	if err != nil {
		t.Fatal("after the release:", err)
	}
	again.Release()
	if _, err := NewClaim(filepath.Join(t.TempDir(), "none", "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
}

func TestVerify(t *testing.T) {
	p := newPatient(t, threeSections(t))
	verify := func(ctx context.Context) error {
		s, err := Inspect(p.path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Verify(ctx)
	}
	if err := verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := verify(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	names, starts := p.blocks()
	for i, name := range names {
		if err := os.WriteFile(p.path, p.flipped(starts[i]+3, 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if d := p.damage(name, verify(t.Context())); d == nil || d.Where != name {
			t.Errorf("damage in %s: %v", name, d)
		}
	}
}

package engine

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// build makes an engine and starts it.
func build(ctx context.Context, c *config.Config, log *slog.Logger) (*Engine, error) {
	m, err := New(ctx, c, "test", log)
	if err == nil {
		m.Start(ctx)
	}
	return m, err
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ordergate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAfterGC(t *testing.T) {
	cycles := make(chan struct{}, 2)
	afterGC(func() bool {
		cycles <- struct{}{}
		return len(cycles) < cap(cycles)
	})
	bedtest.Eventually(t, "it was called after two collections", func() bool {
		runtime.GC()
		return len(cycles) == cap(cycles)
	})
}

func TestGCPercent(t *testing.T) {
	t.Parallel()
	for used, want := range map[uint64]int{0: 400, 16 << 20: 400, 32 << 20: 200, 128 << 20: 50, 360 << 20: 25, 54 << 30: 25} {
		if got := gcPercent(used); got != want {
			t.Errorf("gcPercent(%d) = %d, want %d", used, got, want)
		}
	}
}

package recurring

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestWarnings floods loggers.
func TestWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bedtest.Log
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "since" || a.Key == "until" {
				return slog.Attr{}
			}
			return a
		}}))
		lines := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := strings.TrimSuffix(out.Take(), "\n"); got != strings.Join(want, "\n") {
				t.Errorf("logged:\n%s", got)
			}
		}
		var w Warnings
		one, other := w.Logger(log).With("lock", "a"), w.Logger(log).With("lock", "b")
		for i := range 100 {
			one.Warn("not released", "key", i)
			one.Warn("not renewed", "key", i)
			other.Warn("not released", "key", i)
			w.Logger(log).With("lock", "a").Warn("not released", "key", fmt.Sprint("new ", i))
		}
		one.Error("lost", "key", 1)
		one.Error("lost", "key", 2)
		one.Debug("not logged")
		lines(
			`level=WARN msg="not released" lock=a key=0`, `level=WARN msg="not renewed" lock=a key=0`, `level=WARN msg="not released" lock=b key=0`,
			"level=ERROR msg=lost lock=a key=1", "level=ERROR msg=lost lock=a key=2",
		)
		time.Sleep(interval - quiet + time.Second)
		one.Warn("not released", "key", "later")
		time.Sleep(quiet)
		got := out.Take()
		for _, want := range []string{`WARN msg="not released" lock=a key=later count=200`, `INFO msg="over: not renewed" lock=a total=100`, `INFO msg="over: not released" lock=b total=100`} {
			if !strings.Contains(got, want) {
				t.Errorf("after a minute no %s: %s", want, got)
			}
		}
		time.Sleep(3 * time.Minute)
		lines(`level=INFO msg="over: not released" lock=a total=201`)
		one.Warn("not renewed")
		lines(`level=WARN msg="not renewed" lock=a`)
		w.Close()
		lines(`level=INFO msg="over: not renewed" lock=a total=1`)
		w.Close()
		one.Warn("not renewed")
		one.Warn("not renewed")
		lines(`level=WARN msg="not renewed" lock=a`, `level=WARN msg="not renewed" lock=a`)
	})
}

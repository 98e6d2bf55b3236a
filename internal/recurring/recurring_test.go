package recurring

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is what the log wrote.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// take returns what was written since it was called before.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.text.Reset()
	return o.text.String()
}

// TestTrouble has a thousand of it in two minutes and a half, none, and one more.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "since" {
				return slog.Attr{}
			}
			return a
		}}))
		trouble := New(log, slog.LevelWarn, "refused", "served again")
		lines := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := strings.TrimSuffix(out.take(), "\n"); got != strings.Join(want, "\n") {
				t.Errorf("logged:\n%s", got)
			}
		}
		for i := range 1000 {
			trouble.Note("error", fmt.Sprint(i))
			time.Sleep(150*time.Millisecond + time.Microsecond) // never as a line is due
		}
		lines(
			"level=WARN msg=refused error=0",
			"level=WARN msg=refused error=399 count=399",
			"level=WARN msg=refused error=799 count=400",
		)
		time.Sleep(3 * time.Minute)
		lines("level=WARN msg=refused error=999 count=200", `level=INFO msg="served again" total=1000`)
		trouble.Note("error", "again")
		trouble.Close()
		trouble.Close()
		time.Sleep(3 * time.Minute)
		lines("level=WARN msg=refused error=again", `level=INFO msg="served again" total=1`)
	})
}

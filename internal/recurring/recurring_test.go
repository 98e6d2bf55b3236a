package recurring

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTrouble has a thousand of it in two minutes and a half, none, and one more.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bedtest.Log
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "since" || a.Key == "until" {
				return slog.Attr{}
			}
			return a
		}}))
		trouble := New(log, slog.LevelWarn, "refused", "served again", slog.String("do", "wait"))
		lines := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := strings.TrimSuffix(out.Take(), "\n"); got != strings.Join(want, "\n") {
				t.Errorf("logged:\n%s", got)
			}
		}
		for i := range 1000 {
			trouble.Note("error", fmt.Sprint(i))
			time.Sleep(150*time.Millisecond + time.Microsecond) // never as a line is due
		}
		lines(
			"level=WARN msg=refused error=0 do=wait",
			"level=WARN msg=refused error=399 count=399 do=wait",
			"level=WARN msg=refused error=799 count=400 do=wait",
		)
		time.Sleep(3 * time.Minute)
		lines(`level=INFO msg="served again" total=1000`) // no error of half a minute ago
		trouble.Note("error", "again")
		trouble.Close()
		trouble.Close()
		time.Sleep(3 * time.Minute)
		lines("level=WARN msg=refused error=again do=wait", `level=INFO msg="served again" total=1`)
	})
}

package envoymodule

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestHeldAnswers has streams end while the answers to creates are held.
func TestHeldAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status, answer, end string // the details of the answer, and of the stream's end
		hints               int
	}{
		"the route's timeout":              {"201", "via_upstream", "response_timeout", 1},
		"no traffic":                       {"201", "via_upstream", "stream_idle_timeout", 1},
		"a stream that lasts":              {"201", "via_upstream", "upstream_max_stream_duration_reached", 1},
		"the client leaves":                {"201", "via_upstream", "downstream_remote_disconnect", 0},
		"Envoy has no details":             {"201", "", "", 0},
		"the client leaves Envoy's answer": {"504", "response_timeout", "response_timeout", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer // its lock is the handler's
			b := newBench(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), AnswerDelay: 5 * time.Second})
			for i := range 3 {
				e, _ := b.request("POST", "/orders")
				b.worker.do(func() {
					e.details, e.attempts = tt.answer, 1
					e.respond(tt.status, false)
					e.more(`{"id":42}`, true)
				})
				b.until("it is learned, and held", func() bool { return len(b.filter.Journal.Lines()) == i+1 })
				b.worker.do(func() { e.details = tt.end })
				b.end(e)
			}
			close(b.filter.Learning)
			b.adapter.Close(10 * time.Second)
			if n := strings.Count(log.String(), "while its answer was held, and its order may exist"); n != tt.hints {
				t.Errorf("%d hints, want %d: %s", n, tt.hints, &log)
			}
			if tt.hints > 0 && !strings.Contains(log.String(), " held_up_to=5s details="+tt.end) {
				t.Error(log.String())
			}
		})
	}
}

package lockmw

import (
	"testing"
	"time"
)

// TestHeldAnswers has streams end while their answers are held, and answers that were held
// and passed on.
func TestHeldAnswers(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	begin := time.Now()
	for name, tt := range map[string]struct {
		kept, keptAt time.Duration // an answer was held for so long, so long after the beginning
		after, at    time.Duration // a stream ended
		want         bool
	}{
		"the first":                         {0, 0, 200 * ms, time.Second, true},
		"an answer was held for longer":     {300 * ms, time.Second, 200 * ms, 2 * time.Second, false},
		"no answer was held for as long":    {150 * ms, time.Second, 200 * ms, 2 * time.Second, true},
		"one was held for hardly longer":    {240 * ms, time.Second, 200 * ms, 2 * time.Second, true},
		"one was held for longer, long ago": {300 * ms, time.Second, 200 * ms, 10 * time.Minute, true},
		"one was held for longer, before":   {3 * time.Second, time.Second, 200 * ms, 5 * time.Minute, false},
	} {
		var h delayedAnswers
		if tt.kept > 0 {
			h.keep(begin.Add(tt.keptAt), tt.kept)
			h.keep(begin.Add(tt.keptAt), tt.kept/2) // a shorter one says less
		}
		if got := h.isCut(begin.Add(tt.at), tt.after); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

package order

import (
	"testing"
	"time"
)

// TestStep: how much later than its ID tells an order may have been made.
func TestStep(t *testing.T) {
	for layout, want := range map[string]time.Duration{
		"20060102150405": time.Second, "060102150405": time.Second, "200601021504": time.Minute, "2006010215": time.Hour,
		EpochMillis: time.Millisecond, EpochSeconds: time.Second, "20060102": day, "2006002": day, "200601": 31 * day, "2006": 366 * day,
		"20060102030405": day,                         // the hours of a clock's face
		"0102150405":     0, "150405": 0, "021504": 0, // in any year
	} {
		f := Format{Kind: Timestamped, Layout: layout}
		if got, ok := f.Resolution(); got != want || ok != (want > 0) {
			t.Errorf("%s: %v, %v, want %v", layout, got, ok, want)
		}
	}
	if got, ok := (&Format{Kind: Snowflake}).Resolution(); got != time.Millisecond || !ok {
		t.Errorf("a snowflake: %v, %v", got, ok)
	}
	if got, ok := (&Format{Kind: Digits}).Resolution(); ok {
		t.Errorf("digits: %v", got)
	}
}

package changelog

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRunning appends a doubt about a call that may still create an order. It has an age for
// present readers, and a greater age for later ones.
func TestRunning(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := patient("a")
		opts.Timeout = time.Second // bounds by how much the time in the log is late
		a, b := runInstance(t, s, opts), runInstance(t, s, idle)
		waitSure(t, a, b)
		since := time.UnixMilli(1795000000123)
		if _, err := a.AppendDoubt(t.Context(), Doubt{Kind: Running, Reason: "the client left", Orders: true, Since: since}); err != nil {
			t.Fatal(err)
		}
		now := func() int64 {
			at, err := a.client.Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			return at.UnixMilli()
		}
		acknowledged := now()
		waitSure(t, b)
		if got := b.doubted(); len(got) != 1 || got[0] != (Doubt{Kind: Running, Reason: "the client left", Orders: true, Since: since, Age: got[0].Age, Entry: got[0].Entry}) {
			t.Errorf("received %+v", got)
		}

		entries, err := a.client.XRange(t.Context(), "ordergate:{orders}:log", "-", "+").Result()
		if err != nil || len(entries) != 1 {
			t.Fatal(entries, err)
		}
		text, _ := entries[0].Values["doubt"].(string)
		stamp, _, _ := strings.Cut(strings.TrimPrefix(text, "running: [orders since 1795000000123] "), " ")
		noted, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil || noted < acknowledged-time.Second.Milliseconds() {
			t.Errorf("the log has %q, at %d", text, acknowledged)
		}
		eventually(t, "the server's clock goes on", func() bool { return now() > noted+100 })
		late := runInstance(t, s, idle)
		waitSure(t, late)
		if got := late.doubted(); len(got) != 1 || got[0].Age < 100*time.Millisecond {
			t.Errorf("received %+v later", got)
		}
	})
}

// TestRunningWithoutATime has no age.
func TestRunningWithoutATime(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		a := newInstance(t, s, idle) // it is no member, and has read nothing
		if err := a.RecordDoubt(t.Context(), Doubt{Kind: Running, Reason: "the client left"}); err != nil {
			t.Fatal(err)
		}
		b := runInstance(t, s, idle)
		b.mustWait(t)
		if got := b.doubted(); len(got) != 1 || got[0] != (Doubt{Kind: Running, Reason: "the client left", Entry: got[0].Entry}) {
			t.Errorf("received %+v", got)
		}
	})
}

func TestCutTime(t *testing.T) {
	for text, want := range map[string]struct {
		reason string
		at     int64
	}{
		"17 the client left": {"the client left", 17},
		"0 the client left":  {"the client left", 0},
		"the client left":    {"the client left", 0},
		"17":                 {"", 17},
		"":                   {"", 0},
	} {
		if reason, at := cutTime(text); reason != want.reason || at != want.at {
			t.Errorf("%q is %q at %d", text, reason, at)
		}
	}
}

package condition

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/kryo"
	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a set of conditions, with what it counts and logs.
type bench struct {
	*Set
	redis   *miniredis.Miniredis
	log     bedtest.Log
	counted []string
	now     time.Time
}

// Checked implements Recorder.
func (b *bench) Checked(index int, r Result) {
	b.counted = append(b.counted, fmt.Sprint(b.conditions[index].Name, " ", r))
}

func newBench(t *testing.T, conditions ...Condition) *bench {
	t.Helper()
	b := &bench{redis: miniredis.RunT(t), now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
	client := redis.NewClient(&redis.Options{Addr: b.redis.Addr(), MaxRetries: -1, DialerRetries: 1, DialTimeout: 100 * time.Millisecond})
	checker := redislock.NewChecker(client)
	t.Cleanup(func() { checker.Close(); _ = client.Close() })
	b.Set = New(conditions, Options{
		Checker: checker, Now: func() time.Time { return b.now }, Record: b,
		Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	return b
}

// check returns what a check found: "holds", "unmet 2", or the error.
func (b *bench) check(t *testing.T, ids []string, headers ...string) string {
	t.Helper()
	err := b.Check(t.Context(), ids, headers)
	if unmet, ok := errors.AsType[*gate.UnmetError](err); ok {
		return fmt.Sprint("unmet ", unmet.Condition)
	}
	if err != nil {
		return err.Error()
	}
	return "holds"
}

var (
	orderID = Part{ID: true}
	storeID = Part{Header: 1, Name: "x-store"}
	noon    = Window{From: 11 * 60, To: 13 * 60, Days: [7]bool{true, true, true, true, true, true, true}, Zone: time.UTC}
)

func text(s string) Part { return Part{Text: s} }

// TestSet fulfills one condition after the other.
func TestSet(t *testing.T) {
	b := newBench(t,
		Condition{Name: "latch", Kind: Latch, Key: Template{text("loaders:"), orderID}},
		Condition{Name: "time", Kind: Time, Window: noon},
		Condition{Name: "value", Kind: Is, Key: Template{text("day:"), storeID}, Value: "closed"},
		Condition{Name: "geo", Kind: Near, Key: Template{text("couriers")}, Member: Template{orderID}, To: Template{storeID}, Meters: 500},
	)
	steps := []struct {
		what    string
		do      func()
		want    string
		counted []string
	}{
		{"a latch of one order", func() { bedtest.Check(t, b.redis.Set("loaders:43", "1")) }, "unmet 0", []string{"latch unmet"}},
		{"another time", func() { b.redis.Del("loaders:43"); b.now = b.now.Add(time.Hour) }, "unmet 1", []string{"latch holds", "time unmet"}},
		{"another day", func() { b.now = b.now.Add(-time.Second) }, "unmet 2", []string{"latch holds", "time holds", "value unmet"}},
		{"far away", func() { bedtest.Check(t, b.redis.Set("day:7", "closed")) }, "unmet 3", []string{"latch holds", "time holds", "value holds", "geo unmet"}},
		{"one is near", func() {
			client := redis.NewClient(&redis.Options{Addr: b.redis.Addr()})
			defer client.Close()
			for _, name := range []string{"42", "7"} {
				bedtest.Check(t, client.GeoAdd(t.Context(), "couriers", &redis.GeoLocation{Name: name, Longitude: 13, Latitude: 38}).Err())
			}
		}, "unmet 3", []string{"latch holds", "time holds", "value holds", "geo unmet"}},
		{"both are near", func() {
			client := redis.NewClient(&redis.Options{Addr: b.redis.Addr()})
			defer client.Close()
			bedtest.Check(t, client.GeoAdd(t.Context(), "couriers", &redis.GeoLocation{Name: "43", Longitude: 13, Latitude: 38}).Err())
		}, "holds", []string{"latch holds", "time holds", "value holds", "geo holds"}},
	}
	for _, step := range steps {
		step.do()
		b.counted = nil
		if got := b.check(t, []string{"42", "43"}, "7"); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
		if diff := cmp.Diff(step.counted, b.counted); diff != "" {
			t.Errorf("%s, counted (-want +got):\n%s", step.what, diff)
		}
	}
	if b.log.String() != "" {
		t.Errorf("logged %s", &b.log)
	}
}

// TestWrongKey checks that the log has the template of the key, and no order.
func TestWrongKey(t *testing.T) {
	b := newBench(t,
		Condition{Name: "exists", Kind: Exists, Key: Template{text("open")}},
		Condition{Name: "latch", Kind: Latch, Key: Template{text("loaders:"), orderID, text(":"), storeID}},
	)
	bedtest.Check(t, b.redis.Set("open", "1"))
	_, err := b.redis.RPush("loaders:o-42:7", "a")
	bedtest.Check(t, err)
	failed, ok := errors.AsType[*gate.ConditionError](b.Check(t.Context(), []string{"o-41", "o-42"}, []string{"7"}))
	if !ok || failed.Name != "latch" || failed.Key != "loaders:o-42:7" || !strings.HasPrefix(failed.Cause, "WRONGTYPE") {
		t.Errorf("error %+v", failed)
	}
	if diff := cmp.Diff([]string{"exists holds", "latch unavailable"}, b.counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	log := b.log.String()
	if !strings.Contains(log, `condition=latch key=loaders:{id}:{header:x-store}`) || strings.Contains(log, "o-42") {
		t.Errorf("logged %s", log)
	}
}

// TestRedisAway checks that each condition on a key counts once, and that the log has nothing:
// the adapters log the outage.
func TestRedisAway(t *testing.T) {
	b := newBench(t,
		Condition{Name: "latch", Kind: Latch, Key: Template{text("loaders:"), orderID}},
		Condition{Name: "time", Kind: Time, Window: noon},
		Condition{Name: "exists", Kind: Exists, Key: Template{text("open")}},
	)
	b.redis.Close()
	if got := b.check(t, []string{"42", "43"}); strings.Contains(got, "unmet") || got == "holds" {
		t.Errorf("got %q", got)
	}
	if diff := cmp.Diff([]string{"latch unavailable", "exists unavailable"}, b.counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if b.log.String() != "" {
		t.Errorf("logged %s", &b.log)
	}
}

// TestTimeAlone needs no Redis.
func TestTimeAlone(t *testing.T) {
	set := New([]Condition{{Name: "time", Kind: Time, Window: noon}}, Options{Now: func() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }})
	if err := set.Check(t.Context(), []string{"42"}, nil); err != nil {
		t.Error(err)
	}
}

// TestEncode compares members as a Java service writes them.
func TestEncode(t *testing.T) {
	encode := func(text string) string { return string(kryo.String(text)) }
	b := newBench(t, Condition{Name: "geo", Kind: Near, Key: Template{text("couriers")}, Member: Template{orderID}, To: Template{text("store")}, Meters: 1, Encode: encode})
	client := redis.NewClient(&redis.Options{Addr: b.redis.Addr()})
	defer client.Close()
	for _, name := range []string{"42", "store"} {
		bedtest.Check(t, client.GeoAdd(t.Context(), "couriers", &redis.GeoLocation{Name: encode(name), Longitude: 13, Latitude: 38}).Err())
	}
	if got := b.check(t, []string{"42"}); got != "holds" {
		t.Errorf("got %s", got)
	}
}

func TestWindow(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	bedtest.Check(t, err)
	weekdays := [7]bool{false, true, true, true, true, true, false}
	friday := [7]bool{false, false, false, false, false, true, false}
	all := [7]bool{true, true, true, true, true, true, true}
	for _, tt := range []struct {
		window Window
		at     string // UTC
		want   bool
	}{
		{Window{8 * 60, 20 * 60, weekdays, berlin}, "2026-11-24T06:59:59Z", false}, // a Tuesday, one hour behind Berlin
		{Window{8 * 60, 20 * 60, weekdays, berlin}, "2026-11-24T07:00:00Z", true},
		{Window{8 * 60, 20 * 60, weekdays, berlin}, "2026-11-24T18:59:59Z", true},
		{Window{8 * 60, 20 * 60, weekdays, berlin}, "2026-11-24T19:00:00Z", false},
		{Window{8 * 60, 20 * 60, weekdays, berlin}, "2026-11-22T12:00:00Z", false}, // a Sunday
		{Window{8 * 60, 20 * 60, weekdays, berlin}, "2026-07-24T06:00:00Z", true},  // in summer
		{Window{0, 24 * 60, friday, berlin}, "2026-11-26T23:00:00Z", true},         // Friday in Berlin
		{Window{0, 24 * 60, friday, berlin}, "2026-11-27T23:00:00Z", false},
		{Window{22 * 60, 6 * 60, friday, time.UTC}, "2026-11-27T05:00:00Z", false}, // the end of Thursday's
		{Window{22 * 60, 6 * 60, friday, time.UTC}, "2026-11-27T22:00:00Z", true},
		{Window{22 * 60, 6 * 60, friday, time.UTC}, "2026-11-28T05:59:59Z", true},
		{Window{22 * 60, 6 * 60, friday, time.UTC}, "2026-11-28T06:00:00Z", false},
		{Window{22 * 60, 6 * 60, friday, time.UTC}, "2026-11-28T22:00:00Z", false},
		{Window{150, 180, all, berlin}, "2026-03-29T00:59:59Z", false}, // at 02:00 it becomes 03:00: 02:30 never comes
		{Window{150, 180, all, berlin}, "2026-03-29T01:00:00Z", false},
		{Window{150, 180, all, berlin}, "2026-10-25T00:30:00Z", true}, // 02:30 comes twice
		{Window{150, 180, all, berlin}, "2026-10-25T01:30:00Z", true},
	} {
		at, err := time.Parse(time.RFC3339, tt.at)
		bedtest.Check(t, err)
		if got := tt.window.Contains(at); got != tt.want {
			t.Errorf("%s within %d to %d in %s: %v", tt.at, tt.window.From, tt.window.To, tt.window.Zone, got)
		}
	}
}

// TestProbe reads keys that no order has, one for each condition.
func TestProbe(t *testing.T) {
	b := newBench(t,
		Condition{Name: "latch", Kind: Latch, Key: Template{text("loaders:"), {ID: true, Name: "tenant"}, text("/"), {ID: true, Index: 1}}},
		Condition{Name: "time", Kind: Time, Window: noon},
		Condition{Name: "value", Kind: Is, Key: Template{text("day:"), {Header: 2, Name: "x-day"}}, Value: "closed"},
		Condition{Name: "exists", Kind: Exists, Key: Template{text("open")}},
		Condition{Name: "latch-2", Kind: Latch, Key: Template{text("all")}},
	)
	_, err := b.redis.RPush("all", "a")
	bedtest.Check(t, err)
	describe := func() (all []string) {
		for _, s := range b.Probe(t.Context()) {
			word := ""
			if s.Err != nil {
				word, _, _ = strings.Cut(s.Err.Error(), " ")
			}
			all = append(all, fmt.Sprint(s.Name, " ", s.Key, " ", s.Holds, " ", word, " ", s.Away))
		}
		return all
	}
	want := []string{
		"latch loaders:ordergate-probe/ordergate-probe true  false", "time  true  false", "value day:ordergate-probe false  false",
		"exists open false  false", "latch-2 all false WRONGTYPE false",
	}
	if diff := cmp.Diff(want, describe()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.redis.Close()
	if got := describe(); !strings.HasSuffix(got[0], " true") || got[1] != want[1] {
		t.Errorf("without Redis: %q", got)
	}
	if b.counted != nil || b.log.String() != "" {
		t.Errorf("counted %q, logged %s", b.counted, &b.log)
	}
}

func BenchmarkCheckExpand(b *testing.B) {
	set := New([]Condition{
		{Name: "latch", Kind: Latch, Key: Template{text("loaders:"), orderID}},
		{Name: "time", Kind: Time, Window: noon},
	}, Options{Now: func() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }})
	ids := []string{"42"}
	b.ReportAllocs()
	for b.Loop() {
		_ = set.expand(set.firstOutOfTime(), ids, nil)
	}
}

// TestTemplateOfParts has orders of tenants.
func TestTemplateOfParts(t *testing.T) {
	key := Template{text("loaders:"), {ID: true, Name: "tenant"}, text("/"), {ID: true, Index: 2}, text("/"), storeID}
	if got := key.Expand("acme/7/42", []string{"9"}); got != "loaders:acme/42/9" {
		t.Errorf("got %q", got)
	}
	if got := key.String(); got != "loaders:{tenant}/{id}/{header:x-store}" {
		t.Errorf("got %q", got)
	}
}

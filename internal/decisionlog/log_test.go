package decisionlog

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

// of returns options for a file.
func of(path string) Options { return Options{To: path, Sample: 1, IDs: Plain} }

// settled is a line of a call on which the backend may have acted.
var settled = gate.LoggedDecision{Rule: "settle", Action: gate.ActionSettle, Verdict: gate.VerdictAcquired, Order: "1001", Outcome: "known", Status: 200, Offset: -1}

// absent is another line.
var absent = gate.LoggedDecision{Rule: "look", Action: gate.ActionLookup, Verdict: gate.VerdictAbsent, Order: "77", Status: 404, Offset: -1}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLines has each way to write orders, and texts that a line has to bear.
func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 5000)
	d := gate.LoggedDecision{
		Rule: "settle", Action: gate.ActionSettle, Verdict: gate.VerdictAcquired, Observed: true, Reason: "malformed_id", Offset: 3, Order: "1001", Orders: 3,
		Request: `a"b\c`, Trace: "0af7651916cd43dd8448eb211c80319c", Waited: 1234567 * time.Nanosecond, Held: time.Minute, Key: long, Fence: "7", Outcome: "known", Status: 200,
	}
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte("1001"))
	const rest = `,"orders":3,"request":"a\"b\\c","trace":"0af7651916cd43dd8448eb211c80319c","wait_ms":1.2,"held_ms":60000.0`
	const end = `,"fence":"7","outcome":"known","status":200}` + "\n"
	for ids, want := range map[string]string{
		Plain:  `,"order":"1001"` + rest + `,"key":"` + long[:maxText] + `..."` + end,
		Hashed: `,"order":"` + hex.EncodeToString(mac.Sum(nil)[:16]) + `"` + rest + end,
		None:   rest + end,
	} {
		l := &Log{opts: Options{IDs: ids}, secret: newKeyed("secret")}
		want = `{"time":"2026-01-02T03:04:05.006000Z","rule":"settle","action":"settle","mode":"observe","verdict":"acquired","reason":"malformed_id","offset":3` + want
		if got := string(l.appendLine(nil, &d, time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC))); got != want {
			t.Errorf("%s: got  %s\nwant %s", ids, got, want)
		}
	}
}

// TestWants selects by rule, verdict and share.
func TestWants(t *testing.T) {
	t.Parallel()
	l := &Log{opts: Options{Rules: []string{"look", "settle"}, Verdicts: []string{"absent", "busy"}, Sample: 0.25}}
	s := l.Select([]string{"other", "look", "settle"})
	n := 0
	for range 10_000 {
		if s.Wants(1, gate.ActionLookup, gate.VerdictAbsent) {
			n++
		}
	}
	if n < 2200 || n > 2800 { // 7 standard deviations
		t.Errorf("%d of 10000 lookups", n)
	}
	for _, tt := range []struct {
		rule   int
		action gate.Action
		v      gate.Verdict
		want   bool
	}{
		{2, gate.ActionSettle, gate.VerdictBusy, true}, {2, gate.ActionSettle, gate.VerdictAcquired, false},
		{0, gate.ActionSettle, gate.VerdictBusy, false}, {-1, 0, gate.VerdictBusy, false},
	} {
		if got := s.Wants(tt.rule, tt.action, tt.v); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
	all := (&Log{opts: Options{}}).Select([]string{"look"})
	if all.Wants(0, gate.ActionLookup, gate.VerdictMaybe) || !all.Wants(0, gate.ActionCreate, gate.VerdictNone) || !all.Wants(-1, 0, gate.VerdictAmbiguous) {
		t.Error("with sample 0, all but lookups are logged")
	}
}

// TestWritten has many goroutines log at once. No line is torn, and Close writes all.
func TestWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(of(path), discard)
	if err != nil {
		t.Fatal(err)
	}
	s := l.Select([]string{"settle", "look"})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				s.Write(&settled)
				s.Write(&absent)
			}
		})
	}
	wg.Wait()
	l.Close()
	lines := strings.Split(strings.TrimSuffix(read(t, path), "\n"), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Fatalf("%q", line)
		}
	}
	if len(lines) != 8000 || l.Dropped(Acted)+l.Dropped(Others) != 0 {
		t.Errorf("%d lines, %d dropped", len(lines), l.Dropped(Acted)+l.Dropped(Others))
	}
}

// TestRenamed renames the file, and removes it, as those who rotate logs do.
func TestRenamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(of(path), discard)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := l.Select([]string{"settle"})
	for i, rotate := range []func() error{
		func() error { return os.Rename(path, path+".1") },
		func() error { return os.Remove(path) },
		func() error { return os.Truncate(path, 0) }, // copytruncate
	} {
		s.Write(&settled)
		bedtest.Eventually(t, "it is written", func() bool { return strings.Contains(read(t, path), "1001") })
		if err := rotate(); err != nil {
			t.Fatal(err)
		}
		bedtest.Eventually(t, fmt.Sprintf("a new file has a line (%d)", i), func() bool {
			s.Write(&settled)
			text, err := os.ReadFile(path)
			return err == nil && strings.HasPrefix(string(text), "{") && strings.HasSuffix(string(text), "}\n")
		})
	}
}

// faulty is an output that fails, writes a part, or hangs.
type faulty struct {
	mu      sync.Mutex
	text    bytes.Buffer
	room    int // bytes until it fails
	renewed bool
	hang    chan struct{} // nil: it does not hang
}

var errFull = errors.New("no space left on device")

func (f *faulty) Write(b []byte) (int, error) {
	if f.hang != nil {
		<-f.hang
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(b), f.room)
	f.room -= n
	f.text.Write(b[:n])
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

func (f *faulty) renew() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := f.renewed
	if f.renewed = false; is {
		f.text.Reset()
	}
	return is
}

func (f *faulty) Close() error { return nil }

func (f *faulty) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// TestFull fills the disk in the middle of a line, and makes room again: in the same file the line is
// completed, in the next one it is left out. Meanwhile what fits is kept, and the rest is counted.
func TestFull(t *testing.T) {
	t.Parallel()
	for _, renewed := range []bool{false, true} {
		t.Run(fmt.Sprint("renewed ", renewed), func(t *testing.T) {
			t.Parallel()
			out := &faulty{room: 20}
			l := start(out, of("test"), discard)
			s := l.Select([]string{"settle", "look"})
			s.Write(&settled)
			bedtest.Eventually(t, "a part is written", func() bool { return len(out.String()) == 20 })
			for range 60_000 {
				s.Write(&absent)
			}
			if l.Dropped(Others) == 0 || l.Dropped(Acted) != 0 {
				t.Errorf("%d and %d lines were dropped", l.Dropped(Acted), l.Dropped(Others))
			}
			s.Write(&settled)
			out.mu.Lock()
			out.room, out.renewed = 1<<30, renewed
			out.mu.Unlock()
			bedtest.Eventually(t, "the rest is written", func() bool {
				return strings.Count(out.String(), "\n")+int(l.Dropped(Others)+l.Dropped(Acted)) == 60_002
			})
			for line := range strings.Lines(out.String()) {
				if !json.Valid([]byte(line)) {
					t.Fatalf("%q", line)
				}
			}
			if want := map[bool]uint64{true: 1}[renewed]; l.Dropped(Acted) != want {
				t.Errorf("%d lines of settlements were dropped, want %d", l.Dropped(Acted), want)
			}
			l.Close()
		})
	}
}

// TestHangs has an output that never takes a line. No decision waits for it.
func TestHangs(t *testing.T) {
	t.Parallel()
	out := &faulty{room: 1 << 30, hang: make(chan struct{})}
	l := start(out, of("test"), discard)
	s := l.Select([]string{"settle", "look"})
	for range 60_000 {
		s.Write(&absent)
	}
	s.Write(&settled)
	if l.Dropped(Others) == 0 || l.Dropped(Acted) != 0 {
		t.Errorf("%d and %d lines were dropped", l.Dropped(Acted), l.Dropped(Others))
	}
	begin := time.Now()
	l.Close()
	if took := time.Since(begin); took > 10*closeTime {
		t.Errorf("Close takes %v", took)
	}
	close(out.hang)
	<-l.done
}

// TestDevFull opens a real device without room, and paths that cannot be opened: one is a pipe
// without a reader.
func TestDevFull(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	l, err := Open(of("/dev/full"), discard)
	if err != nil {
		t.Fatal(err)
	}
	l.Select([]string{"settle"}).Write(&settled)
	l.Close()
	if l.Dropped(Acted) != 1 {
		t.Errorf("%d lines were dropped, want 1", l.Dropped(Acted))
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/null/log", pipe} {
		if _, err := Open(of(path), discard); err == nil {
			t.Error(path, "was opened")
		}
	}
}

// BenchmarkWrite is what a logged decision costs the request that it is about, and one that is left out.
func BenchmarkWrite(b *testing.B) {
	for _, ids := range []string{Plain, Hashed} {
		l, err := Open(Options{To: "/dev/null", Sample: 1, IDs: ids, Secret: "0123456789abcdef"}, discard)
		if err != nil {
			b.Fatal(err)
		}
		s := l.Select([]string{"look"})
		b.Run(ids, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Write(&absent)
			}
		})
		l.Close()
	}
	s := (&Log{opts: Options{Sample: 0.01}}).Select([]string{"look"})
	b.Run("left out", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Wants(0, gate.ActionLookup, gate.VerdictAbsent)
		}
	})
}

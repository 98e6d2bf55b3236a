package snapshot

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/exact"
)

var testKey = [16]byte{1, 2, 3}

func testHeader() Header {
	return Header{
		Identity: Identity{
			Name: "orders", Kind: "layered", Capacity: 1_000_000, FalsePositiveRate: 0.001, Layout: bloom.Blocked,
			KeyFingerprint: bloom.Params{Key: testKey}.KeyFingerprint(),
		},
		Position: []byte("1700000000000-7 42"),
		Sources:  "orders.csv of yesterday",
		Created:  time.Date(2026, 11, 21, 16, 22, 31, 5, time.UTC),
	}
}

func newBloom(tb testing.TB, layout bloom.Layout, capacity, ids int) *bloom.Filter {
	tb.Helper()
	f, err := bloom.New(bloom.Params{Capacity: uint64(capacity), FalsePositiveRate: 0.001, Key: testKey, Layout: layout})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range ids {
		f.Add(strconv.Itoa(i))
	}
	return f
}

func newExact(tb testing.TB, ids int) *exact.Set {
	tb.Helper()
	s := exact.New()
	for i := range ids {
		if _, err := s.Add(strconv.Itoa(i * 3)); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// threeSections has bodies of one block and of several.
func threeSections(tb testing.TB) []Section {
	return []Section{
		{Label: "recent", Exact: newExact(tb, 1_000)},
		{Label: "20261121", Bloom: newBloom(tb, bloom.Blocked, 1_500_000, 20_000)}, // 2.8 blocks
		{Label: "20261120", Bloom: newBloom(tb, bloom.Classic, 1_000, 1_000)},
	}
}

func write(tb testing.TB, sections []Section) (path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "orders.snap")
	if err := Write(tb.Context(), path, testHeader(), sections); err != nil {
		tb.Fatal(err)
	}
	return path
}

func checkSame(t *testing.T, got, want []Section) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d sections, want %d", len(got), len(want))
	}
	for i, s := range want {
		if got[i].Label != s.Label {
			t.Errorf("section %d: label %q, want %q", i, got[i].Label, s.Label)
		}
		var a, b bytes.Buffer
		if s.Exact != nil {
			for _, one := range []struct {
				s *exact.Set
				w *bytes.Buffer
			}{{got[i].Exact, &a}, {s.Exact, &b}} {
				if _, err := one.s.WriteTo(one.w); err != nil {
					t.Fatal(err)
				}
			}
		} else {
			if got[i].Bloom.Params() != s.Bloom.Params() || got[i].Bloom.Count() != s.Bloom.Count() {
				t.Errorf("section %d: count %d, %+v", i, got[i].Bloom.Count(), got[i].Bloom.Size())
			}
			a.Write(bitsOf(t, got[i].Bloom))
			b.Write(bitsOf(t, s.Bloom))
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("section %d differs", i)
		}
	}
}

func bitsOf(t *testing.T, f *bloom.Filter) []byte {
	t.Helper()
	all := make([]byte, f.SizeBytes())
	if n, err := f.ReadChunk(all, 0); err != nil || n != len(all) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	return all
}

func TestRoundTrip(t *testing.T) {
	for name, sections := range map[string][]Section{"no section": nil, "three": threeSections(t)} {
		path := write(t, sections)
		header, got, err := load(t.Context(), path, testHeader().Identity, testKey)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(testHeader(), header); diff != "" {
			t.Errorf("%s: header (-want +got):\n%s", name, diff)
		}
		checkSame(t, got, sections)
		if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
			t.Errorf("%s: files left behind: %q, %v", name, left, err)
		}
	}
}

func TestInspect(t *testing.T) {
	s, err := Inspect(write(t, threeSections(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := testHeader().KeyFingerprint
	want := []SectionInfo{
		{Label: "recent", Exact: true, Count: 1000},
		{Label: "20261121", Params: bloom.Params{Capacity: 1_500_000, FalsePositiveRate: 0.001, Layout: bloom.Blocked}, KeyFingerprint: key, Count: 20_000},
		{Label: "20261120", Params: bloom.Params{Capacity: 1_000, FalsePositiveRate: 0.001, Layout: bloom.Classic}, KeyFingerprint: key, Count: 1000},
	}
	for i, got := range s.Sections() {
		if got.Bytes == 0 {
			t.Errorf("section %d has no bytes", i)
		}
		got.Bytes = 0
		if got != want[i] {
			t.Errorf("section %d: %+v, want %+v", i, got, want[i])
		}
	}
}

func TestMismatch(t *testing.T) {
	path := write(t, []Section{{Bloom: newBloom(t, bloom.Blocked, 100, 1)}})
	for field, change := range map[string]func(*Identity){
		`name is "orders", want "returns"`:        func(w *Identity) { w.Name = "returns" },
		`kind is "layered", want "local"`:         func(w *Identity) { w.Kind = "local" },
		`capacity is 1000000, want 2000000`:       func(w *Identity) { w.Capacity *= 2 },
		`false positive rate is 0.001, want 0.01`: func(w *Identity) { w.FalsePositiveRate = 0.01 },
		`layout is "blocked", want ""`:            func(w *Identity) { w.Layout = "" },
		`key fingerprint is 6e`:                   func(w *Identity) { w.KeyFingerprint[0]++ },
	} {
		want := testHeader().Identity
		change(&want)
		_, _, err := load(t.Context(), path, want, testKey)
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("error %q, want one with %q", err, field)
		}
		if !strings.HasPrefix(field, "key") && !strings.Contains(err.Error(), field) {
			t.Errorf("error %q, want one with %q", err, field)
		}
	}
	_, _, err := load(t.Context(), path, testHeader().Identity, [16]byte{9})
	var mismatch *MismatchError
	if !errors.As(err, &mismatch) || mismatch.Field != "section 0: key fingerprint" {
		t.Errorf("another key: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none"), Identity{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe} {
		if _, err := Open(path, Identity{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 257)
	filter := newBloom(t, "", 10, 1)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name     string
		ctx      context.Context
		path     string
		change   func(*Header)
		sections []Section
		want     string
	}{
		{"name", t.Context(), "a", func(h *Header) { h.Name = long }, nil, "the name has 257 bytes"},
		{"kind", t.Context(), "a", func(h *Header) { h.Kind = long }, nil, "the kind has 257 bytes"},
		{"position", t.Context(), "a", func(h *Header) { h.Position = make([]byte, 16<<10+1) }, nil, "the position has 16385 bytes"},
		{"sources", t.Context(), "a", func(h *Header) { h.Sources = long }, nil, "the sources has 257 bytes"},
		{"label", t.Context(), "a", nil, []Section{{Label: long, Bloom: filter}}, "section 0: label has 257 bytes"},
		{"neither", t.Context(), "a", nil, []Section{{}}, "either"},
		{"both", t.Context(), "a", nil, []Section{{Bloom: filter, Exact: exact.New()}}, "either"},
		{"too many", t.Context(), "a", nil, make([]Section, 16_385), "16385 sections"},
		{"no directory", t.Context(), "none/a", nil, nil, "no such file"},
		{"over a directory", t.Context(), ".", nil, nil, "exists"},
		{"ctx", canceled, "a", nil, []Section{{Bloom: filter}}, "canceled"},
	} {
		h := testHeader()
		if tc.change != nil {
			tc.change(&h)
		}
		err := Write(tc.ctx, dir+"/"+tc.path, h, tc.sections)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

func TestReadRefusesAnotherFilter(t *testing.T) {
	s, err := Inspect(write(t, []Section{{Bloom: newBloom(t, bloom.Blocked, 1000, 10)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, p := range map[string]bloom.Params{
		"key":      {Capacity: 1000, FalsePositiveRate: 0.001},
		"capacity": {Capacity: 1001, FalsePositiveRate: 0.001, Key: testKey},
		"rate":     {Capacity: 1000, FalsePositiveRate: 0.002, Key: testKey},
		"layout":   {Capacity: 1000, FalsePositiveRate: 0.001, Key: testKey, Layout: bloom.Classic},
	} {
		f, err := bloom.New(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Read(t.Context(), 0, Section{Bloom: f}); err == nil || !strings.Contains(err.Error(), "other parameters") {
			t.Errorf("another %s: %v", name, err)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	into, err := s.New(0, testKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Read(canceled, 0, into); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

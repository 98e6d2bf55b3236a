package exact

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// mixed returns a set with containers of each kind, at both ends of the numbers.
func mixed(tb testing.TB) *Set {
	tb.Helper()
	s := New()
	for i := range uint64(6000) {
		mustAdd(tb, s, i)                // a bitmap
		mustAdd(tb, s, 1<<33+i*100)      // lists
		mustAdd(tb, s, i*0x1000000061)   // alone
		mustAdd(tb, s, math.MaxUint64-i) // the last container
	}
	return s
}

func serialized(tb testing.TB, s *Set) []byte {
	tb.Helper()
	var out bytes.Buffer
	if n, err := s.WriteTo(&out); err != nil || n != int64(out.Len()) {
		tb.Fatalf("%d of %d bytes, %v", n, out.Len(), err)
	}
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	for name, s := range map[string]*Set{"empty": New(), "mixed": mixed(t)} {
		data := serialized(t, s)
		got := New()
		if err := got.Merge(bytes.NewReader(data), uint64(len(data))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Count() != s.Count() || !bytes.Equal(serialized(t, got), data) {
			t.Errorf("%s: %d of %d came back", name, got.Count(), s.Count())
		}
	}
}

// TestMergeKeepsWhatIsThere is for a set that follows its change log while its
// snapshot is being read.
func TestMergeKeepsWhatIsThere(t *testing.T) {
	data := serialized(t, mixed(t))
	s := New()
	mustAdd(t, s, 3)
	mustAdd(t, s, 77_777)
	if err := s.Merge(bytes.NewReader(data), uint64(len(data))); err != nil {
		t.Fatal(err)
	}
	want := mixed(t)
	mustAdd(t, want, 77_777)
	if s.Count() != want.Count() || !bytes.Equal(serialized(t, s), serialized(t, want)) {
		t.Errorf("count %d, want %d", s.Count(), want.Count())
	}
	mustAdd(t, s, 88_888)
	if in, ok := s.MayContain("88888"); !in || !ok {
		t.Error("what was added after reading is gone")
	}
}

func TestMergeRefuses(t *testing.T) {
	s := New()
	for i := range uint64(40) {
		mustAdd(t, s, i)
		mustAdd(t, s, 1<<16+i)
	}
	good := serialized(t, s)
	patch := func(at int, value uint64) []byte {
		data := bytes.Clone(good)
		binary.LittleEndian.PutUint64(data[at:], value)
		return data
	}
	swapped := bytes.Clone(good)
	first := 8 + int(binary.LittleEndian.Uint64(good))
	copy(swapped, good[first:2*first])
	copy(swapped[first:], good[:first])
	for _, tc := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "unexpected EOF"},
		{"cut", good[:len(good)-1], "announced"},
		{"more", append(bytes.Clone(good), 0), "1 bytes too many"},
		{"a shard longer than all", patch(0, math.MaxUint64), "announced"},
		{"more bitmaps than fit", patch(8, math.MaxUint64), "is malformed"},
		{"more bitmaps than are there", patch(8, 2), "could not read key"},
		{"fewer bitmaps than are there", patch(8, 0), "ends after 8"},
		{"shards swapped", swapped, "belongs to another shard"},
	} {
		err := New().Merge(bytes.NewReader(tc.data), uint64(len(tc.data)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an error with %q", tc.name, err, tc.want)
		}
	}
	if err := New().Merge(bytes.NewReader(good[:40]), uint64(len(good))); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a reader that ends early: %v", err)
	}
	if _, err := s.WriteTo(full{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a writer that takes nothing: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// FuzzMerge refuses what it is given for a shard, or takes it and is a set.
func FuzzMerge(f *testing.F) {
	var record bytes.Buffer
	for _, numbers := range [][]uint64{{}, {1, 2, 3}, {5, 1 << 24, 1 << 40}, {math.MaxUint64 &^ (shards - 1<<containerBits)}} {
		record.Reset()
		if _, err := roaring64.BitmapOf(numbers...).WriteTo(&record); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(record.Bytes()))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sh := &shard{ids: roaring64.New()}
		if err := sh.merge(0, data); err != nil {
			return
		}
		var out bytes.Buffer
		if _, err := sh.ids.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		again := &shard{ids: roaring64.New()}
		if err := again.merge(0, out.Bytes()); err != nil || again.count.Load() != sh.count.Load() {
			t.Fatalf("what was taken does not come back: %v", err)
		}
		// Not all of them: eight bytes of a run are 65,536 numbers.
		it := sh.ids.Iterator()
		for left := 1000; it.HasNext() && left > 0; left-- {
			if n := it.Next(); !sh.ids.Contains(n) || n>>containerBits%shards != 0 {
				t.Fatalf("%d was taken and is not found", n)
			}
		}
	})
}

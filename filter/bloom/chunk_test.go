package bloom

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
)

func TestChunks(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		p := params(layout, 5000, 0.001)
		from, to := mustNew(t, p), mustNew(t, p)
		addRange(from, 0, 5000)
		to.Add("kept")
		// Of a size that does not divide the filter's.
		buf := make([]byte, 1000)
		for at := uint64(0); at < from.SizeBytes(); {
			n, err := from.ReadChunk(buf, at)
			if err != nil || n == 0 {
				t.Fatalf("at byte %d: %d, %v", at, n, err)
			}
			if err := to.MergeChunk(buf[:n], at); err != nil {
				t.Fatal(err)
			}
			at += uint64(n)
		}
		from.Add("kept")
		if !slices.Equal(from.words, to.words) {
			t.Error("the copy differs")
		}
		if n, err := from.ReadChunk(buf, from.SizeBytes()); n != 0 || err != nil {
			t.Errorf("at the end: %d, %v", n, err)
		}
	})
}

func TestChunksRefused(t *testing.T) {
	f := mustNew(t, params(Classic, 100, 0.01))
	end := f.SizeBytes()
	for _, tc := range []struct {
		name   string
		length int
		offset uint64
		read   bool // refused by ReadChunk too
	}{
		{"half a word", 4, 0, true},
		{"between words", 8, 4, true},
		{"behind the end", 8, end + 8, true},
		{"far behind the end", 8, math.MaxUint64 - 7, true},
		{"over the end", 16, end - 8, false},
	} {
		if _, err := f.ReadChunk(make([]byte, tc.length), tc.offset); (err != nil) != tc.read {
			t.Errorf("reading %s: %v", tc.name, err)
		}
		if err := f.MergeChunk(make([]byte, tc.length), tc.offset); err == nil {
			t.Errorf("merging %s: no error", tc.name)
		}
	}
}

// TestMergeBesideAdds has a filter follow while its snapshot is being read: bits
// set by one must not undo those of another.
func TestMergeBesideAdds(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		p := params(layout, 40_000, 0.01)
		old, f := mustNew(t, p), mustNew(t, p)
		addRange(old, 0, 20_000)
		whole := make([]byte, old.SizeBytes())
		if _, err := old.ReadChunk(whole, 0); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for at := 0; at < len(whole); at += 64 {
					if err := f.MergeChunk(whole[at:min(at+64, len(whole))], uint64(at)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for part := range 4 {
			wg.Go(func() { addRange(f, 20_000+part*5000, 25_000+part*5000) })
		}
		wg.Wait()
		for i := range 40_000 {
			if !f.MayContain(strconv.Itoa(i)) {
				t.Fatalf("ID %d is gone", i)
			}
		}
	})
}

// TestAddUnited merges the bits of two filters that have some IDs in common.
func TestAddUnited(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		p := params(layout, 30_000, 0.001)
		a, b, both := mustNew(t, p), mustNew(t, p), mustNew(t, p)
		addRange(a, 0, 20_000)
		addRange(b, 10_000, 30_000)
		addRange(both, 0, 30_000)
		bits := make([]byte, b.SizeBytes())
		if _, err := b.ReadChunk(bits, 0); err != nil {
			t.Fatal(err)
		}
		if err := a.MergeChunk(bits, 0); err != nil {
			t.Fatal(err)
		}
		a.AddUnited(b.Count())
		if !slices.Equal(a.words, both.words) {
			t.Error("merged bits are not what adding both gives")
		}
		if n := float64(a.Count()); math.Abs(n/30_000-1) > 0.01 {
			t.Errorf("count %g of 30,000", n)
		}
	})
}

func TestKeyFingerprint(t *testing.T) {
	a := params(Blocked, 1, 0.1)
	b := a
	b.Key[15]++
	if a.KeyFingerprint() == b.KeyFingerprint() {
		t.Error("two keys have one fingerprint")
	}
	if a.KeyFingerprint() == a.Key {
		t.Error("the fingerprint is the key")
	}
}

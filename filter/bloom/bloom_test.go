package bloom

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

var testKey = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// layouts are for tests of what holds in each.
var layouts = []Layout{Blocked, Classic}

func params(layout Layout, capacity uint64, rate float64) Params {
	return Params{Capacity: capacity, FalsePositiveRate: rate, Key: testKey, Layout: layout}
}

func mustNew(tb testing.TB, p Params) *Filter {
	tb.Helper()
	f, err := New(p)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// perLayout runs a test for each layout.
func perLayout(t *testing.T, test func(t *testing.T, layout Layout)) {
	for _, layout := range layouts {
		t.Run(string(layout), func(t *testing.T) { test(t, layout) })
	}
}

func TestNoFalseNegativeUnderConcurrentAdds(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		const adders, each, batch = 8, 24_000, 40
		// A fifth of the room, so that the adders meet in the same words.
		f := mustNew(t, params(layout, adders*each/5, 0.01))
		var done [adders]atomic.Int64 // IDs that their adder has added
		var wg sync.WaitGroup
		id := func(adder, i int) string { return strconv.Itoa(adder*each + i) }
		for a := range adders {
			wg.Go(func() {
				for i := 0; i < each; i += batch {
					var ids []string
					for n := range batch {
						ids = append(ids, id(a, i+n))
					}
					if a%2 == 0 {
						f.AddAll(ids)
					} else {
						for _, one := range ids {
							f.Add(one)
						}
					}
					done[a].Store(int64(i + batch))
				}
			})
		}
		for reader := range adders {
			wg.Go(func() {
				// Behind an adder of another's core, right at its heels.
				a := (reader + 1) % adders
				for i := 0; i < each; {
					for now := int(done[a].Load()); i < now; i++ {
						if !f.MayContain(id(a, i)) {
							t.Errorf("ID %s is gone right after it was added", id(a, i))
							return
						}
					}
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
		for a := range adders {
			for i := range each {
				if !f.MayContain(id(a, i)) {
					t.Fatalf("ID %s is gone", id(a, i))
				}
			}
		}
	})
}

func TestNoFalseNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, err := New(params(
			rapid.SampledFrom(append(layouts, "")).Draw(t, "layout"),
			rapid.Uint64Range(1, 2000).Draw(t, "capacity"),
			rapid.Float64Range(1e-9, 0.9).Draw(t, "rate")))
		if err != nil {
			t.Fatal(err)
		}
		ids := rapid.SliceOf(rapid.String()).Draw(t, "ids")
		all := rapid.SliceOf(rapid.String()).Draw(t, "all")
		for _, id := range ids {
			known := f.MayContain(id)
			if changed := f.Add(id); changed == known {
				t.Fatalf("Add(%q) changed %v, but the ID was known %v", id, changed, known)
			}
		}
		before := f.Count()
		if n := f.AddAll(all); uint64(n) != f.Count()-before {
			t.Fatalf("AddAll changed %d, but Count grew by %d", n, f.Count()-before)
		}
		for _, id := range append(ids, all...) {
			if !f.MayContain(id) {
				t.Fatalf("ID %q is gone", id)
			}
			if f.Add(id) {
				t.Fatalf("adding %q again changed something", id)
			}
		}
		if n := f.AddAll(all); n != 0 {
			t.Fatalf("adding them all again changed %d", n)
		}
	})
}

// TestAddAllIsAdd has both set the same bits.
func TestAddAllIsAdd(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		one, all := mustNew(t, params(layout, 1000, 1e-5)), mustNew(t, params(layout, 1000, 1e-5))
		var ids []string
		for i := range 1000 {
			ids = append(ids, strconv.Itoa(i))
			one.Add(ids[i])
		}
		all.AddAll(ids)
		if !slices.Equal(one.words, all.words) || one.Count() != all.Count() {
			t.Error("AddAll set other bits than Add")
		}
	})
}

func TestKeyDecidesPositions(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		p := params(layout, 1000, 0.001)
		for i := range p.Key {
			other := p
			other.Key[i] ^= 1
			a, b := mustNew(t, p), mustNew(t, other)
			shared := 0
			for n := range 100 {
				a.Add(strconv.Itoa(n))
				b.Add(strconv.Itoa(n))
			}
			for w := range a.words {
				shared += bits.OnesCount64(a.words[w] & b.words[w])
			}
			// 1,000 of about 15,000 bits each: 65 are shared by chance, give or take 8.
			if shared > 120 {
				t.Errorf("keys that differ in byte %d share %d of 1000 positions", i, shared)
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		f := mustNew(t, params(layout, 1000, 0.001))
		f.Add("known")
		id := strings.Repeat("9", 40)
		ids := []string{id, "known", ""}
		for _, tc := range []struct {
			name string
			do   func()
		}{
			{"hit", func() { f.MayContain("known") }},
			{"miss", func() { f.MayContain(id) }},
			{"empty", func() { f.MayContain("") }},
			{"add", func() { f.Add(id) }},
			{"add all", func() { f.AddAll(ids) }},
		} {
			if n := testing.AllocsPerRun(100, tc.do); n != 0 {
				t.Errorf("%s: %g allocations", tc.name, n)
			}
		}
	})
}

func BenchmarkMayContain(b *testing.B) {
	for _, layout := range layouts {
		for _, n := range []int{1e6, 1e7} {
			f := mustNew(b, params(layout, uint64(n), 0.001))
			for i := range n {
				f.Add("order-" + strconv.Itoa(i))
			}
			// IDs made beforehand: making them would be measured too. A prime count,
			// spread over the whole range.
			const asked = 65_537
			for _, kind := range []string{"order-", "other-"} {
				ids := make([]string, asked)
				for i := range ids {
					ids[i] = kind + strconv.Itoa(i*(n/asked))
				}
				name := map[string]string{"order-": "hit", "other-": "miss"}[kind]
				b.Run(fmt.Sprintf("%s/%s/%.0e", layout, name, float64(n)), func(b *testing.B) {
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						f.MayContain(ids[i])
						if i++; i == asked {
							i = 0
						}
					}
				})
			}
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, layout := range layouts {
		for _, n := range []int{1e6, 1e7} {
			ids := make([]string, 65_536)
			for _, way := range []string{"one", "all"} {
				b.Run(fmt.Sprintf("%s/%s/%.0e", layout, way, float64(n)), func(b *testing.B) {
					f := mustNew(b, params(layout, uint64(n), 0.001))
					b.ReportAllocs()
					b.StopTimer()
					for left := b.N; left > 0; left -= len(ids) {
						some := ids[:min(len(ids), left)]
						for i := range some {
							some[i] = strconv.Itoa(left*65_537 + i)
						}
						b.StartTimer()
						if way == "all" {
							f.AddAll(some)
						} else {
							for _, id := range some {
								f.Add(id)
							}
						}
						b.StopTimer()
					}
				})
			}
		}
	}
}

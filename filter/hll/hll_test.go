package hll

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLikeRedis gives a real Redis what a sketch is given: they have to count alike,
// and an ID that changes nothing here must change nothing there.
func TestLikeRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
	defer client.Close()
	var s Sketch
	n := 0
	for _, upTo := range []int{1, 2, 10, 1000, 100_000} {
		var changes, same []any
		for ; n < upTo; n++ {
			id := fmt.Sprintf("%.*d", n%40, n) // of all lengths
			if s.Changes(Redis(id)) != s.Add(Redis(id)) {
				t.Fatalf("Changes(%q) is wrong", id)
			}
			changes = append(changes, id)
			if n%100 == 0 {
				same = append(same, id)
			}
		}
		if err := client.PFAdd(t.Context(), "probed", changes...).Err(); err != nil {
			t.Fatal(err)
		}
		if got, want := s.Count(), pfcount(t, client); got != want {
			t.Errorf("%d IDs: %d, Redis has %d", n, got, want)
		}
		if changed, err := client.PFAdd(t.Context(), "probed", same...).Result(); err != nil || changed != 0 {
			t.Errorf("Redis changed with IDs that it has: %d, %v", changed, err)
		}
	}
	// What changes nothing here need not be sent.
	var sent []any
	var d Sketch
	for i := range n {
		if id := fmt.Sprintf("%.*d", i%40, i); d.Add(Redis(id)) {
			sent = append(sent, id)
		}
	}
	want := pfcount(t, client)
	if err := client.Del(t.Context(), "probed").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.PFAdd(t.Context(), "probed", sent...).Err(); err != nil {
		t.Fatal(err)
	}
	if got := pfcount(t, client); got != want || len(sent) > n*3/4 {
		t.Errorf("with %d of %d IDs sent Redis counts %d, want %d", len(sent), n, got, want)
	}
}

func pfcount(t *testing.T, client *redis.Client) uint64 {
	t.Helper()
	n, err := client.PFCount(context.WithoutCancel(t.Context()), "probed").Result()
	if err != nil {
		t.Fatal(err)
	}
	return uint64(n)
}

// TestCount is within 2.5 standard errors, for IDs of which there is no better
// reason than that they come one after the other.
func TestCount(t *testing.T) {
	var s Sketch
	if n := s.Count(); n != 0 {
		t.Errorf("the empty set has %d", n)
	}
	next := 1
	for i := 1; i <= 1_000_000; i++ {
		s.Add(Redis(fmt.Sprint("20261121-", i)))
		if i != next {
			continue
		}
		next *= 10
		if got := float64(s.Count()); math.Abs(got-float64(i)) > 0.02*float64(i) {
			t.Errorf("%d IDs count as %.0f", i, got)
		}
	}
}

func TestMergeAndReset(t *testing.T) {
	var a, b, both Sketch
	for i := range 30_000 {
		h := Redis(fmt.Sprint(i))
		both.Add(h)
		if i < 20_000 {
			a.Add(h)
		}
		if i >= 10_000 {
			b.Add(h)
		}
	}
	a.Merge(&b)
	if a.Count() != both.Count() {
		t.Errorf("merged %d, want %d", a.Count(), both.Count())
	}
	a.Reset()
	if a.Count() != 0 {
		t.Errorf("%d after a reset", a.Count())
	}
}

// TestFullRegisters has hashes that no ID will have: all zeros.
func TestFullRegisters(t *testing.T) {
	var s Sketch
	for i := range registers {
		s.Add(uint64(i))
	}
	if n := s.Count(); n != math.MaxUint64 {
		t.Errorf("counts %d", n)
	}
}

func TestConcurrently(t *testing.T) {
	var s, alone Sketch
	for i := range 8 * 5000 {
		alone.Add(Redis(fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				s.Add(Redis(fmt.Sprint(w*5000 + i)))
				if i%500 == 0 {
					s.Count()
				}
			}
		})
	}
	wg.Wait()
	if s.Count() != alone.Count() {
		t.Errorf("%d, want %d: an addition was lost", s.Count(), alone.Count())
	}
}

func BenchmarkAdd(b *testing.B) {
	var s Sketch
	ids := make([]string, 1<<16)
	for i := range ids {
		ids[i] = fmt.Sprintf("%019d", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(Redis(ids[i&(1<<16-1)]))
	}
}

func BenchmarkCount(b *testing.B) {
	var s Sketch
	for i := range 100_000 {
		s.Add(Redis(fmt.Sprint(i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Count()
	}
}

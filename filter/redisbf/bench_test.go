package redisbf

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkAdd adds.
func BenchmarkAdd(b *testing.B) {
	for _, kind := range []Kind{Bitmap, Bloom, Redisson} {
		b.Run(string(kind), func(b *testing.B) {
			opts := variant{opts: Options{Kind: kind}}.fill()
			opts.Capacity = uint64(max(b.N, 1000))
			s := opened(b, single(b), opts)
			list := ids("order", b.N)
			b.ResetTimer()
			must(b, s.Add(b.Context(), list))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "IDs/s")
		})
	}
}

// BenchmarkOpen makes a bitmap of 360 MB.
func BenchmarkOpen(b *testing.B) {
	srv := single(b)
	for b.Loop() {
		s := opened(b, srv, Options{Kind: Bitmap, Key: "large", Capacity: 200_000_000, Secret: secret})
		b.StopTimer()
		must(b, s.Drop(b.Context()))
		b.StartTimer()
	}
}

// BenchmarkAsk asks for orders that do not exist, one caller and many at a time.
func BenchmarkAsk(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			s := loaded(b, single(b), variant{opts: Options{Kind: Bitmap}}.fill(), 100)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for n := i; n < b.N; n += callers {
						if _, err := s.Ask(b.Context(), fmt.Sprint("none-", n)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

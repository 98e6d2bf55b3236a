package redisbf

import "testing"

// BenchmarkAdd adds. What it costs to ask is measured by tests/bench/filters.
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

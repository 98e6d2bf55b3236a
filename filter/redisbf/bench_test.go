package redisbf

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// BenchmarkAsk has 50 ask at once, half of them for IDs that are there: by Ask, with
// a proof of their own each, and with one command each, as is common, which proves
// nothing.
func BenchmarkAsk(b *testing.B) {
	const n = 100_000
	for _, kind := range []Kind{Bitmap, Bloom, Redisson} {
		srv := single(b)
		opts := variant{opts: Options{Kind: kind}}.fill()
		opts.Capacity = n
		s := loaded(b, srv, opts, n)
		b.Run(string(kind)+"/ask", func(b *testing.B) {
			callers(b, func(ctx context.Context, id string) error {
				_, err := s.Ask(ctx, id)
				return err
			})
		})
		b.Run(string(kind)+"/one proof each", func(b *testing.B) {
			callers(b, func(ctx context.Context, id string) error { return s.Has(ctx, []string{id}, make([]Answer, 1)) })
		})
		b.Run(string(kind)+"/one command each", func(b *testing.B) {
			single := oneCommand(s)
			callers(b, func(ctx context.Context, id string) error { return srv.client.Process(ctx, single(id)) })
		})
	}
}

// oneCommand is what asks Redis for an ID and nothing else: without a proof.
func oneCommand(s *Set) func(id string) redis.Cmder {
	key := s.kind.keys(0)[0]
	bits := func(at []int64) redis.Cmder {
		return redis.NewIntSliceCmd(context.Background(), readBits(key, at)...)
	}
	switch k := s.kind.(type) {
	case *bloom:
		return func(id string) redis.Cmder {
			return redis.NewBoolCmd(context.Background(), "bf.exists", key, id)
		}
	case *bitmap:
		return func(id string) redis.Cmder {
			var at []int64
			for _, s := range k.spots([]string{id}) {
				first, second := s.positions()
				at = append(at, first, second)
			}
			return bits(at)
		}
	case *redisson:
		f := k.filter.Load()
		return func(id string) redis.Cmder { return bits(k.positions(nil, f, []string{id})) }
	}
	panic("no such kind")
}

func callers(b *testing.B, ask func(context.Context, string) error) {
	const n = 50
	b.ReportAllocs()
	b.SetParallelism((n + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	var caller atomic.Int64
	b.RunParallel(func(p *testing.PB) {
		i := caller.Add(1) * 1_000_003
		for p.Next() {
			prefix := "order"
			if i%2 == 0 {
				prefix = "nobody"
			}
			if err := ask(b.Context(), fmt.Sprintf("%s-%d", prefix, i%100_000)); err != nil {
				b.Error(err)
				return
			}
			i++
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
}

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

package main

import (
	"context"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/exact"
	"github.com/ordergate/ordergate/filter/snapshot"
)

var benchKey = [16]byte{7, 6, 5, 4, 3, 2, 1}

type bloomSet struct{ *bloom.Filter }

func openBloom(layout bloom.Layout) func(int, float64) (set, error) {
	return func(n int, rate float64) (set, error) {
		f, err := bloom.New(bloom.Params{Capacity: uint64(n), FalsePositiveRate: rate, Key: benchKey, Layout: layout})
		return bloomSet{f}, err
	}
}

func (b bloomSet) add(ids []string) error {
	b.AddAll(ids)
	return nil
}

func (b bloomSet) has(id string) bool { return b.MayContain(id) }

func (b bloomSet) bytes(int) (takes, formula uint64) {
	return mappedBytes(b.SizeBytes()), b.Size().Bytes
}

// mappedBytes rounds up to the pages that a kernel gives, from where a filter is in
// pages of its own.
func mappedBytes(n uint64) uint64 {
	if n < 2<<20 {
		return n
	}
	return (n + 4095) &^ 4095
}

func (b bloomSet) write(ctx context.Context, path string) error {
	return snapshot.Write(ctx, path, snapshot.Header{}, []snapshot.Section{{Bloom: b.Filter}})
}

func (b bloomSet) read(ctx context.Context, path string) (set, error) {
	section, err := readSection(ctx, path)
	return bloomSet{section.Bloom}, err
}

type exactSet struct{ *exact.Set }

func (e exactSet) add(ids []string) error {
	for _, id := range ids {
		if _, err := e.Add(id); err != nil {
			return err
		}
	}
	return nil
}

func (e exactSet) has(id string) bool {
	in, ok := e.MayContain(id)
	return in && ok
}

func (e exactSet) bytes(int) (takes, formula uint64) { return e.SizeBytes(), 0 }

func (e exactSet) write(ctx context.Context, path string) error {
	return snapshot.Write(ctx, path, snapshot.Header{}, []snapshot.Section{{Exact: e.Set}})
}

func (e exactSet) read(ctx context.Context, path string) (set, error) {
	section, err := readSection(ctx, path)
	return exactSet{section.Exact}, err
}

// readSection reads the one section of a file into a new filter.
func readSection(ctx context.Context, path string) (section snapshot.Section, err error) {
	file, err := snapshot.Open(path, snapshot.Identity{})
	if err != nil {
		return section, err
	}
	defer file.Close()
	if section, err = file.New(0, benchKey); err != nil {
		return section, err
	}
	return section, file.Read(ctx, 0, section)
}

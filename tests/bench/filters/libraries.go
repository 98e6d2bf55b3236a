package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	unkeyed "github.com/bits-and-blooms/bloom/v3"
	"github.com/cespare/xxhash/v2"
	"github.com/dchest/siphash"
	"github.com/greatroar/blobloom"
)

// unkeyedSet is bits-and-blooms as it is: not for two goroutines at once.
type unkeyedSet struct {
	*unkeyed.BloomFilter
	rate float64
}

func openUnkeyed(n int, rate float64) (set, error) {
	return unkeyedSet{unkeyed.NewWithEstimates(uint(n), rate), rate}, nil
}

func (u unkeyedSet) add(ids []string) error {
	for _, id := range ids {
		u.AddString(id)
	}
	return nil
}

func (u unkeyedSet) has(id string) bool { return u.TestString(id) }

func (u unkeyedSet) bytes(n int) (takes, formula uint64) {
	m, _ := unkeyed.EstimateParameters(uint(n), u.rate)
	return uint64(len(u.BitSet().Words())) * 8, uint64(m) / 8
}

func (u unkeyedSet) write(_ context.Context, path string) error {
	return toFile(path, func(w io.Writer) error {
		_, err := u.WriteTo(w)
		return err
	})
}

func (u unkeyedSet) read(_ context.Context, path string) (set, error) {
	got := unkeyedSet{&unkeyed.BloomFilter{}, u.rate}
	return got, fromFile(path, func(r io.Reader) error {
		_, err := got.ReadFrom(r)
		return err
	})
}

// blobloomSet is blobloom, which leaves the hash to its user.
type blobloomSet struct {
	hash  func(string) uint64
	plain *blobloom.Filter // this one
	sync  *blobloom.SyncFilter
	// wanted is what it needs by its formula, and has rounded up to blocks of 512.
	wanted uint64
}

func openBlobloom(n int, rate float64) (set, error) {
	config := blobloom.Config{Capacity: uint64(n), FPRate: rate}
	bits, _ := blobloom.Optimize(config)
	return &blobloomSet{hash: xxhash.Sum64String, plain: blobloom.NewOptimized(config), wanted: bits}, nil
}

func openBlobloomSync(n int, rate float64) (set, error) {
	return newBlobloomSync(n, rate, xxhash.Sum64String), nil
}

func newBlobloomSync(n int, rate float64, hash func(string) uint64) set {
	config := blobloom.Config{Capacity: uint64(n), FPRate: rate}
	bits, _ := blobloom.Optimize(config)
	return &blobloomSet{hash: hash, sync: blobloom.NewSyncOptimized(config), wanted: bits}
}

// openBlobloomKeyed cannot be poisoned by crafted IDs either.
func openBlobloomKeyed(n int, rate float64) (set, error) {
	key0, key1 := binary.LittleEndian.Uint64(benchKey[:8]), binary.LittleEndian.Uint64(benchKey[8:])
	hash := func(id string) uint64 {
		return siphash.Hash(key0, key1, unsafe.Slice(unsafe.StringData(id), len(id)))
	}
	return newBlobloomSync(n, rate, hash), nil
}

func (b *blobloomSet) add(ids []string) error {
	if b.plain != nil {
		for _, id := range ids {
			b.plain.Add(b.hash(id))
		}
		return nil
	}
	for _, id := range ids {
		b.sync.Add(b.hash(id))
	}
	return nil
}

func (b *blobloomSet) has(id string) bool {
	if b.plain != nil {
		return b.plain.Has(b.hash(id))
	}
	return b.sync.Has(b.hash(id))
}

func (b *blobloomSet) bytes(int) (takes, formula uint64) {
	return ((b.wanted + 511) &^ 511) / 8, b.wanted / 8
}

func (b *blobloomSet) write(_ context.Context, path string) error {
	return toFile(path, func(w io.Writer) (err error) {
		if b.plain != nil {
			_, err = blobloom.Dump(w, b.plain, "")
		} else {
			_, err = blobloom.DumpSync(w, b.sync, "")
		}
		return err
	})
}

func (b *blobloomSet) read(_ context.Context, path string) (set, error) {
	got := &blobloomSet{hash: b.hash, wanted: b.wanted}
	return got, fromFile(path, func(r io.Reader) error {
		loader, err := blobloom.NewLoader(r)
		if err != nil {
			return err
		}
		if b.plain != nil {
			got.plain, err = loader.Load(nil)
		} else {
			got.sync, err = loader.LoadSync(nil)
		}
		return err
	})
}

// toFile is what one writes around a library's dump: buffered, and on the disk
// when it returns.
func toFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing a dump: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	err = write(w)
	return errors.Join(err, w.Flush(), f.Sync(), f.Close())
}

func fromFile(path string, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading a dump: %w", err)
	}
	return errors.Join(read(bufio.NewReaderSize(f, 1<<20)), f.Close())
}

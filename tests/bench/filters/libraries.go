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
type unkeyedSet struct{ *unkeyed.BloomFilter }

func openUnkeyed(n int) (set, error) {
	return unkeyedSet{unkeyed.NewWithEstimates(uint(n), falsePositiveRate)}, nil
}

func (u unkeyedSet) add(ids []string) error {
	for _, id := range ids {
		u.AddString(id)
	}
	return nil
}

func (u unkeyedSet) has(id string) bool { return u.TestString(id) }

func (u unkeyedSet) bytes(n int) (takes, formula uint64) {
	m, _ := unkeyed.EstimateParameters(uint(n), falsePositiveRate)
	return uint64(len(u.BitSet().Words())) * 8, uint64(m) / 8
}

func (u unkeyedSet) write(_ context.Context, path string) error {
	return toFile(path, func(w io.Writer) error {
		_, err := u.WriteTo(w)
		return err
	})
}

func (u unkeyedSet) read(_ context.Context, path string) (set, error) {
	got := unkeyedSet{&unkeyed.BloomFilter{}}
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
	bits  uint64
}

func blobloomConfig(n int) blobloom.Config {
	return blobloom.Config{Capacity: uint64(n), FPRate: falsePositiveRate}
}

func openBlobloom(n int) (set, error) {
	f := blobloom.NewOptimized(blobloomConfig(n))
	return &blobloomSet{hash: xxhash.Sum64String, plain: f, bits: f.NumBits()}, nil
}

func openBlobloomSync(n int) (set, error) {
	return &blobloomSet{hash: xxhash.Sum64String, sync: blobloom.NewSyncOptimized(blobloomConfig(n)), bits: blobloomBits(n)}, nil
}

// openBlobloomKeyed cannot be poisoned by crafted IDs either.
func openBlobloomKeyed(n int) (set, error) {
	key0, key1 := binary.LittleEndian.Uint64(benchKey[:8]), binary.LittleEndian.Uint64(benchKey[8:])
	hash := func(id string) uint64 {
		return siphash.Hash(key0, key1, unsafe.Slice(unsafe.StringData(id), len(id)))
	}
	return &blobloomSet{hash: hash, sync: blobloom.NewSyncOptimized(blobloomConfig(n)), bits: blobloomBits(n)}, nil
}

// blobloomBits returns the bits of a SyncFilter, which does not say them: whole
// blocks of 512.
func blobloomBits(n int) uint64 {
	bits, _ := blobloom.Optimize(blobloomConfig(n))
	return (bits + 511) &^ 511
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

func (b *blobloomSet) bytes(n int) (takes, formula uint64) {
	bits, _ := blobloom.Optimize(blobloomConfig(n))
	return b.bits / 8, bits / 8
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
	got := &blobloomSet{hash: b.hash, bits: b.bits}
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

package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/exact"
)

// New returns an empty filter for the i-th section, for Read. The error is a
// [*MismatchError] for a key that is not the section's, or of memory.
func (s *Snapshot) New(i int, key [16]byte) (Section, error) {
	d := s.sections[i]
	if d.Exact {
		return Section{Label: d.Label, Exact: exact.New()}, nil
	}
	p := d.Params
	p.Key = key
	if got := p.KeyFingerprint(); got != d.KeyFingerprint {
		return Section{}, &MismatchError{s.path, fmt.Sprintf("section %d: key fingerprint", i),
			fmt.Sprintf("%x", d.KeyFingerprint), fmt.Sprintf("%x", got)}
	}
	f, err := bloom.New(p)
	if err != nil {
		return Section{}, fmt.Errorf("loading snapshot %s: section %d: %w", s.path, i, err)
	}
	return Section{Label: d.Label, Bloom: f}, nil
}

// Read adds the i-th section to what New returned for it. It may have got other
// IDs since, and may get them meanwhile. It blocks until all is read, on all
// CPUs. The error is a [*DamageError] that names the block, one of the disk,
// wrapped, or ctx's; some of the IDs are in the filter then.
func (s *Snapshot) Read(ctx context.Context, i int, into Section) error {
	d := s.sections[i]
	if d.Exact {
		return s.readExact(ctx, i, into.Exact)
	}
	// Bits in another filter's places are worse than none: they look like a load
	// that went well.
	p := into.Bloom.Params()
	if p.KeyFingerprint() != d.KeyFingerprint || p.Capacity != d.Params.Capacity || into.Bloom.Bits() != d.bits || into.Bloom.Size().Layout != d.Params.Layout {
		return fmt.Errorf("loading snapshot %s: section %d: into a filter of other parameters", s.path, i)
	}
	err := s.eachBlock(ctx, i, func(block uint64, data []byte) error {
		if err := into.Bloom.MergeChunk(data, block*blockSize); err != nil {
			return fmt.Errorf("loading snapshot %s: section %d: %w", s.path, i, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	into.Bloom.AddUnited(d.Count)
	return nil
}

// Verify reads all of the file's blocks, on all CPUs, and forgets them. It needs no
// key, and says nothing of whose the file is. Errors are those of Read.
func (s *Snapshot) Verify(ctx context.Context) error {
	for i := range s.sections {
		if err := s.eachBlock(ctx, i, func(uint64, []byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Snapshot) readExact(ctx context.Context, i int, into *exact.Set) error {
	d := s.sections[i]
	r := &bodyReader{ctx: ctx, s: s, section: i, buf: make([]byte, blockSize+sumSize)}
	err := into.Merge(r, d.Bytes)
	// The set is read to its end and no further, so no block is left out.
	switch {
	case err == nil:
		return nil
	case r.err != nil && !errors.Is(r.err, io.EOF):
		return r.err
	}
	return s.damaged(fmt.Sprintf("section %d", i), "%v", err)
}

// eachBlock calls do with each block of a section, in any order and at the same time.
func (s *Snapshot) eachBlock(ctx context.Context, section int, do func(block uint64, data []byte) error) error {
	blocks := blocksOf(s.sections[section].Bytes)
	// A few at a time in flight suit a disk, and no more CPUs than there are.
	workers, ctx := errgroup.WithContext(ctx)
	var next atomic.Uint64
	for range min(uint64(min(max(runtime.GOMAXPROCS(0), 2), 8)), blocks) {
		workers.Go(func() error {
			buf := make([]byte, blockSize+sumSize)
			for {
				block := next.Add(1) - 1
				if block >= blocks {
					return nil
				}
				data, err := s.block(ctx, section, block, buf)
				if err != nil {
					return err
				}
				if err := do(block, data); err != nil {
					return err
				}
			}
		})
	}
	return workers.Wait()
}

// bodyReader reads a section block by block.
type bodyReader struct {
	ctx     context.Context
	s       *Snapshot
	section int
	block   uint64
	rest    []byte // of the block before
	buf     []byte
	err     error
}

// Read implements io.Reader.
func (r *bodyReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil {
		if r.block == blocksOf(r.s.sections[r.section].Bytes) {
			r.err = io.EOF
		} else {
			r.rest, r.err = r.s.block(r.ctx, r.section, r.block, r.buf)
			r.block++
		}
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// block reads a block into buf and checks it.
func (s *Snapshot) block(ctx context.Context, section int, block uint64, buf []byte) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("loading snapshot %s: %w", s.path, context.Cause(ctx))
	}
	where := fmt.Sprintf("section %d, block %d", section, block)
	n := min(s.sections[section].Bytes-block*blockSize, blockSize)
	buf = buf[:n+sumSize]
	if err := s.readAt(where, buf, int64(s.starts[section]+block*(blockSize+sumSize))); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(buf[n:]) != blockSum(section, block, buf[:n]) {
		return nil, s.damaged(where, "the checksum is wrong")
	}
	return buf[:n], nil
}

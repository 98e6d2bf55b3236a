package exact

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// The format is 256 records, one a shard: the length in 8 bytes, little-endian,
// and a bitmap in the portable format of Roaring for 64 bits
// (https://github.com/RoaringBitmap/RoaringFormatSpec).

// leastEntry is the least that the portable format takes for numbers that share
// their high half: the key, and a 32-bit bitmap of one container with one number.
const leastEntry = 4 + 8 + 4 + 2

// WriteTo writes the set. What was added before the call is in it; what is added
// meanwhile may be. It holds no more than 1/256 of the set a second time.
func (s *Set) WriteTo(w io.Writer) (written int64, err error) {
	var buf bytes.Buffer
	for i := range s.shards {
		sh := &s.shards[i]
		buf.Reset()
		buf.Write(make([]byte, 8))
		sh.mu.RLock()
		_, err := sh.ids.WriteTo(&buf)
		sh.mu.RUnlock()
		if err != nil {
			return written, fmt.Errorf("writing an exact set: %w", err)
		}
		binary.LittleEndian.PutUint64(buf.Bytes(), uint64(buf.Len()-8))
		n, err := w.Write(buf.Bytes())
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Merge adds what WriteTo wrote, length bytes of it. It checks what it reads: a
// length that is not true is an error, and reserves no more memory than there is
// input. What was read before an error stays in the set.
func (s *Set) Merge(r io.Reader, length uint64) error {
	for i := range s.shards {
		var head [8]byte
		if length < uint64(len(head)) {
			return fmt.Errorf("reading an exact set: shard %d: %w", i, io.ErrUnexpectedEOF)
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return fmt.Errorf("reading an exact set: shard %d: %w", i, err)
		}
		length -= uint64(len(head))
		size := binary.LittleEndian.Uint64(head[:])
		if size > length {
			return fmt.Errorf("reading an exact set: shard %d: %d bytes announced, %d left", i, size, length)
		}
		length -= size
		var record bytes.Buffer // grows with what comes, not with what is announced
		if _, err := io.CopyN(&record, r, int64(size)); err != nil {
			return fmt.Errorf("reading an exact set: shard %d: %w", i, err)
		}
		if err := s.shards[i].merge(uint64(i), record.Bytes()); err != nil {
			return fmt.Errorf("reading an exact set: shard %d: %w", i, err)
		}
	}
	if length != 0 {
		return fmt.Errorf("reading an exact set: %d bytes too many", length)
	}
	return nil
}

// merge adds a bitmap to the shard of the given number.
func (sh *shard) merge(number uint64, record []byte) error {
	// The library reserves room for as many entries as it is told.
	if len(record) < 8 || binary.LittleEndian.Uint64(record) > uint64(len(record)-8)/leastEntry {
		return fmt.Errorf("a bitmap of %d bytes is malformed", len(record))
	}
	ids := roaring64.New()
	read, err := ids.ReadFrom(bytes.NewReader(record))
	if err != nil {
		return err
	}
	if read != int64(len(record)) {
		return fmt.Errorf("a bitmap of %d bytes ends after %d", len(record), read)
	}
	if ids.IsEmpty() {
		return nil
	}
	if err := ids.Validate(); err != nil {
		return err
	}
	// A number of another shard would never be found.
	for it := ids.Iterator(); it.HasNext(); it.AdvanceIfNeeded((it.PeekNext()>>containerBits + 1) << containerBits) {
		n := it.PeekNext()
		if n>>containerBits%shards != number {
			return fmt.Errorf("%d belongs to another shard", n)
		}
		if n>>containerBits == 1<<(64-containerBits)-1 {
			break // the next container has no number
		}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.ids.IsEmpty() {
		sh.ids = ids
	} else {
		sh.ids.Or(ids)
	}
	sh.count.Store(sh.ids.GetCardinality())
	return nil
}

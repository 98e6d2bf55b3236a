package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/ordergate/ordergate/filter/bloom"
)

// The format, version 1. Numbers are little-endian, texts have their length in
// two bytes before them, checksums are CRC-32C.
//
//	header   magic, version (4 bytes), the header's length (4 bytes), identity,
//	         position, sources, time of creation (ns since 1970), number of
//	         sections (4 bytes), the sections' descriptions, checksum of all this
//	body     of each section in turn, in blocks of 1 MiB, the last one shorter;
//	         behind each block a checksum, see blockSum
//	trailer  magic, the file's length (8 bytes), the header's checksum again,
//	         checksum of the trailer
const (
	version     = 1
	headerMagic = "OGFILT\r\n" // what treats a file as text spoils the magic
	endMagic    = "OGFEND\r\n"
	prefixSize  = len(headerMagic) + 4 + 4
	sumSize     = 4
	trailerSize = len(endMagic) + 8 + sumSize + sumSize
	blockSize   = 1 << 20
)

// Limits of what is written, so that there are some to what is read.
const (
	maxText     = 256
	maxPosition = 16 << 10
	maxSections = 16_384 // of about 90 bytes in the header each
	maxHeader   = 2 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// blockSum is over the place of a block and its data: blocks that changed places
// are damage too.
func blockSum(section int, block uint64, data []byte) uint32 {
	var place [12]byte
	binary.LittleEndian.PutUint32(place[:], uint32(section))
	binary.LittleEndian.PutUint64(place[4:], block)
	return crc32.Update(sum(place[:]), castagnoli, data)
}

// blocksOf returns how many blocks so many bytes make.
func blocksOf(bytes uint64) uint64 {
	n := bytes / blockSize
	if bytes%blockSize > 0 {
		n++
	}
	return n
}

// withSums returns the length of a section's body with its checksums. It is for
// lengths that were held against the file's.
func withSums(bytes uint64) uint64 { return bytes + sumSize*blocksOf(bytes) }

// description is a SectionInfo with the size that its filter had.
type description struct {
	SectionInfo
	bits   uint64
	hashes uint32
}

// encodeHeader returns the header. Its length does not depend on the sections'
// counts and lengths.
func encodeHeader(h Header, sections []description) []byte {
	e := encoder(headerMagic)
	e.u32(version)
	e.u32(0) // the length, below
	e.text(h.Name)
	e.text(h.Kind)
	e.u64(h.Capacity)
	e.u64(math.Float64bits(h.FalsePositiveRate))
	e.text(string(h.Layout))
	e = append(e, h.KeyFingerprint[:]...)
	e.text(string(h.Position))
	e.text(h.Sources)
	e.u64(uint64(h.Created.UnixNano()))
	e.u32(uint32(len(sections)))
	for _, s := range sections {
		kind := byte(0)
		if s.Exact {
			kind = 1
		}
		e.text(s.Label)
		e = append(e, kind)
		e.text(string(s.Params.Layout))
		e.u64(s.Params.Capacity)
		e.u64(math.Float64bits(s.Params.FalsePositiveRate))
		e.u64(s.bits)
		e.u32(s.hashes)
		e = append(e, s.KeyFingerprint[:]...)
		e.u64(s.Count)
		e.u64(s.Bytes)
	}
	binary.LittleEndian.PutUint32(e[len(headerMagic)+4:], uint32(len(e)+sumSize))
	e.u32(sum(e))
	return e
}

// encodeTrailer returns the end of a file of the given length, itself included.
func encodeTrailer(header []byte, length uint64) []byte {
	e := encoder(endMagic)
	e.u64(length)
	e = append(e, header[len(header)-sumSize:]...)
	e.u32(sum(e))
	return e
}

// decodeHeader reads a header whose length and checksum were checked. It takes
// nothing for granted all the same: a checksum can be made by anyone.
func decodeHeader(data []byte) (h Header, sections []description, err error) {
	d := decoder{rest: data[prefixSize : len(data)-sumSize]}
	h.Name = d.text()
	h.Kind = d.text()
	h.Capacity = d.u64()
	h.FalsePositiveRate = math.Float64frombits(d.u64())
	h.Layout = bloom.Layout(d.text())
	copy(h.KeyFingerprint[:], d.bytes(len(h.KeyFingerprint)))
	h.Position = []byte(d.text())
	h.Sources = d.text()
	h.Created = time.Unix(0, int64(d.u64())).UTC()
	n := d.u32()
	if n > maxSections {
		return h, nil, fmt.Errorf("%d sections, at most %d are possible", n, maxSections)
	}
	for range n {
		var s description
		s.Label = d.text()
		kind := d.bytes(1)[0]
		s.Exact = kind == 1
		s.Params.Layout = bloom.Layout(d.text())
		s.Params.Capacity = d.u64()
		s.Params.FalsePositiveRate = math.Float64frombits(d.u64())
		s.bits = d.u64()
		s.hashes = d.u32()
		copy(s.KeyFingerprint[:], d.bytes(len(s.KeyFingerprint)))
		s.Count = d.u64()
		s.Bytes = d.u64()
		if kind > 1 {
			return h, nil, fmt.Errorf("section %d is of the unknown kind %d", len(sections), kind)
		}
		if d.short {
			break
		}
		sections = append(sections, s)
	}
	switch {
	case d.short:
		return h, nil, errors.New("it ends too early")
	case len(d.rest) > 0:
		return h, nil, fmt.Errorf("it has %d bytes too many", len(d.rest))
	}
	return h, sections, nil
}

type encoder []byte

func (e *encoder) u32(n uint32) { *e = binary.LittleEndian.AppendUint32(*e, n) }
func (e *encoder) u64(n uint64) { *e = binary.LittleEndian.AppendUint64(*e, n) }

func (e *encoder) text(s string) {
	*e = binary.LittleEndian.AppendUint16(*e, uint16(len(s)))
	*e = append(*e, s...)
}

// decoder reads what encoder wrote; once it is short of bytes it gives zeros.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.rest) {
		d.short, d.rest = true, nil
		return make([]byte, n) // at most 64 KiB: n is a constant or from two bytes
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) u32() uint32  { return binary.LittleEndian.Uint32(d.bytes(4)) }
func (d *decoder) u64() uint64  { return binary.LittleEndian.Uint64(d.bytes(8)) }
func (d *decoder) text() string { return string(d.bytes(int(binary.LittleEndian.Uint16(d.bytes(2))))) }

package redisbf

import (
	"strconv"

	"github.com/minio/highwayhash"

	"github.com/ordergate/ordergate/internal/kryo"
)

// highwayKey is Redisson's: the words 9e3779b97f4a7c15 f39cc0605cedc834
// 1082276bf3a27251 f86c6a11d0c18e95, little-endian.
var highwayKey = []byte{
	0x15, 0x7c, 0x4a, 0x7f, 0xb9, 0x79, 0x37, 0x9e,
	0x34, 0xc8, 0xed, 0x5c, 0x60, 0xc0, 0x9c, 0xf3,
	0x51, 0x72, 0xa2, 0xf3, 0x6b, 0x27, 0x82, 0x10,
	0x95, 0x8e, 0xc1, 0xd0, 0x11, 0x6a, 0x6c, 0xf8,
}

// redissonPositions appends the bits of an item in a filter of Redisson 4.7: two
// halves of its HighwayHash-128 are added in turn, without the sign bit, modulo
// the size.
func redissonPositions(to []int64, item []byte, size uint64, hashes int) []int64 {
	sum := highwayhash.Sum128(item, highwayKey)
	var half [2]uint64
	for i, b := range sum {
		half[i/8] |= uint64(b) << (8 * (i % 8))
	}
	x := half[0]
	for i := range hashes {
		to = append(to, int64(x&(1<<63-1)%size))
		x += half[1-i%2]
	}
	return to
}

// encode returns the bytes that Redisson hashes for a string, which is UTF-8.
func (c Codec) encode(id string) []byte {
	switch c {
	case StringCodec:
		return []byte(id)
	case LongCodec:
		if n, err := strconv.ParseInt(id, 10, 64); err == nil && strconv.FormatInt(n, 10) == id {
			return kryo.Long(n)
		}
	}
	return kryo.String(id)
}

package redisbf

import (
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/minio/highwayhash"
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
	if c == StringCodec {
		return []byte(id)
	}
	return kryo(id)
}

const (
	// kryoString is the class of a string in Kryo5, as Redisson registers it.
	kryoString = 0x03
	// kryoASCII is the length up to which Kryo5 writes ASCII without a length.
	kryoASCII = 32
)

// kryo returns a string as Kryo5 writes it with its class.
func kryo(s string) []byte {
	out := append(make([]byte, 0, len(s)+4), kryoString)
	if n := len(s); n > 1 && n <= kryoASCII && isASCII(s) {
		out = append(out, s...)
		out[len(out)-1] |= 0x80 // the last one
		return out
	}
	units := utf16.Encode([]rune(s))
	// The length plus one: 6 bits with the flag 80, then 7 a byte.
	n := uint64(len(units)) + 1
	first := byte(n&0x3f) | 0x80
	if n >>= 6; n > 0 {
		first |= 0x40 // more follow
	}
	out = append(out, first)
	for n > 0 {
		b := byte(n & 0x7f)
		if n >>= 7; n > 0 {
			b |= 0x80
		}
		out = append(out, b)
	}
	for _, u := range units {
		// As UTF-8 does a character, but each half of a pair by itself.
		switch bits.Len16(u) {
		case 0, 1, 2, 3, 4, 5, 6, 7:
			out = append(out, byte(u))
		case 8, 9, 10, 11:
			out = append(out, 0xc0|byte(u>>6), 0x80|byte(u&0x3f))
		default:
			out = append(out, 0xe0|byte(u>>12), 0x80|byte(u>>6&0x3f), 0x80|byte(u&0x3f))
		}
	}
	return out
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

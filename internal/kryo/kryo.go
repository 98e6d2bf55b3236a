// Package kryo writes strings as Kryo5 does, the default codec of Redisson. See [String].
package kryo

import (
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// stringClass is the class of a string in Kryo5, as Redisson registers it.
	stringClass = 0x03
	// maxPlain is the length up to which Kryo5 writes ASCII without a length.
	maxPlain = 32
)

// String returns a string as Kryo5 writes it with its class.
func String(s string) []byte {
	out := append(make([]byte, 0, len(s)+4), stringClass)
	if n := len(s); n > 1 && n <= maxPlain && isASCII(s) {
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

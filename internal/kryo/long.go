package kryo

// longClass is the class of a Long in Kryo5, as Redisson registers it.
const longClass = 0x09

// maxLong is the number of bytes of a Long without its class. The last one has 8 bits of it.
const maxLong = 9

// Long returns a Long as Kryo5 writes it with its class: zigzag, 7 bits a byte.
func Long(n int64) []byte {
	out := append(make([]byte, 0, 1+maxLong), longClass)
	rest := uint64(n)<<1 ^ uint64(n>>63)
	for range maxLong - 1 {
		if rest < 0x80 {
			return append(out, byte(rest))
		}
		out = append(out, byte(rest)|0x80)
		rest >>= 7
	}
	return append(out, byte(rest))
}

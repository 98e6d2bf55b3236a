package bloom

import "unsafe"

// memory is the place of a filter's bits.
type memory struct {
	words  []uint64
	mapped []byte // nil: words is on Go's heap
}

// mapFrom is the size from which memory comes from the kernel: that of a huge
// page, below which there is nothing to gain.
const mapFrom = 2 << 20

// allocate returns zeroed memory of so many bytes, a multiple of 8, that starts
// at a cache line.
func allocate(bytes uint64) (memory, error) {
	if bytes >= mapFrom {
		return mapped(bytes)
	}
	return heap(bytes), nil
}

// heap takes the memory from Go's heap, whose objects stay where they are.
func heap(bytes uint64) memory {
	words := make([]uint64, bytes/8+blockWords-1)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(words))) % blockBytes / 8
	return memory{words: words[skip:][:bytes/8]}
}

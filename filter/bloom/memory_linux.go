package bloom

import (
	"fmt"
	"math"
	"syscall"
	"unsafe"
)

// mapped takes the memory from the kernel, and asks for huge pages: with pages of
// 4 KiB nearly every look into a large filter would miss in the TLB too and wait
// for the page table before it waits for the bits. Go's heap does not ask for
// them. The kernel zeroes a page when it is first touched.
func mapped(bytes uint64) (memory, error) {
	if bytes > math.MaxInt {
		return memory{}, fmt.Errorf("reserving %d bytes for a filter: more than can be addressed", bytes)
	}
	m, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return memory{}, fmt.Errorf("reserving %d bytes for a filter: %w", bytes, err)
	}
	// A kernel without huge pages refuses: slower, and right.
	_ = syscall.Madvise(m, syscall.MADV_HUGEPAGE)
	return memory{words: unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(m))), bytes/8), mapped: m}, nil
}

// free gives the memory back.
func (m memory) free() {
	if m.mapped != nil {
		_ = syscall.Munmap(m.mapped) // of what Mmap returned: it cannot fail
	}
}

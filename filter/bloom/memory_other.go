//go:build !linux

package bloom

import "fmt"

// mapped takes the memory from Go's heap: elsewhere there is no hint to give that
// would be worth code of its own.
func mapped(bytes uint64) (memory, error) {
	if bytes > 1<<62 || uint64(int(bytes)) != bytes {
		return memory{}, fmt.Errorf("reserving %d bytes for a filter: more than can be addressed", bytes)
	}
	return heap(bytes), nil
}

// free leaves it to the garbage collector.
func (memory) free() {}

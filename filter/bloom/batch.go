package bloom

import (
	"runtime"
	"sync/atomic"
)

// batchIDs is how many IDs AddAll looks ahead. At 10^8 IDs the blocked layout took
// 240 ns an ID one by one, 98 with 8, 90 with 16, and with 32 only 6 less.
const batchIDs = 16

// AddAll adds IDs like Add does, in less time when there are many: the memory is
// asked for the places of several before any is written to. It returns how many
// changed something.
func (f *Filter) AddAll(ids []string) (changed int) {
	var first, second [batchIDs]uint64
	for len(ids) > 0 {
		n := min(len(ids), batchIDs)
		for i, id := range ids[:n] {
			first[i], second[i] = f.hash(id)
		}
		if f.size.Layout == Blocked {
			for _, a := range first[:n] {
				atomic.LoadUint64(&f.block(a)[0])
			}
			for i, a := range first[:n] {
				if addBlocked(f.block(a), a, second[i], f.hashes) {
					changed++
				}
			}
		} else {
			for i, a := range first[:n] {
				f.touchClassic(a, second[i]|1)
			}
			for i, a := range first[:n] {
				if f.addClassic(a, second[i]|1) {
					changed++
				}
			}
		}
		ids = ids[n:]
	}
	f.added.Add(uint64(changed))
	runtime.KeepAlive(f)
	return changed
}

package probes

import "sync"

// queue holds the IDs that wait for a write, in a fixed amount of memory. The lock is held for
// one copy, and never during I/O.
type queue struct {
	mu       sync.Mutex
	waiting  batch
	spare    batch         // memory of the last batch, once it is recycled
	halfFull chan struct{} // of capacity 1: half of it is used
}

// batch is IDs, one after the other.
type batch struct {
	bytes []byte
	ends  []int // of each ID
}

func (q *queue) start(size int) {
	// Most IDs have ten bytes or more.
	fresh := func() batch { return batch{make([]byte, 0, size), make([]int, 0, size/8)} }
	q.waiting, q.spare = fresh(), fresh()
	q.halfFull = make(chan struct{}, 1)
}

// push copies an ID into the queue and reports whether there was space.
func (q *queue) push(id string) bool {
	q.mu.Lock()
	b := &q.waiting
	fits := len(id) <= cap(b.bytes)-len(b.bytes) && len(b.ends) < cap(b.ends)
	if fits {
		b.bytes = append(b.bytes, id...)
		b.ends = append(b.ends, len(b.bytes))
	}
	half := 2*len(b.bytes) >= cap(b.bytes) || 2*len(b.ends) >= cap(b.ends)
	q.mu.Unlock()
	if half {
		select {
		case q.halfFull <- struct{}{}:
		default: // the signal is pending
		}
	}
	return fits
}

// takeBatch empties the queue and returns its IDs. Call recycle with them before the next
// takeBatch.
func (q *queue) takeBatch() batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.waiting
	q.waiting, q.spare = q.spare, batch{}
	return b
}

// recycle reuses the memory of a batch.
func (q *queue) recycle(b batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = batch{b.bytes[:0], b.ends[:0]}
}

// ids returns the IDs as arguments of a command.
func (b batch) ids() []any {
	list := make([]any, len(b.ends))
	from := 0
	for i, end := range b.ends {
		list[i] = b.bytes[from:end]
		from = end
	}
	return list
}

package filter

import (
	"sync"
	"sync/atomic"

	"github.com/ordergate/ordergate/internal/presence"
)

// bits is a set of IDs in memory that cannot grow. Its methods are safe for concurrent use.
// MayContain never waits, and sees every Add that has returned.
type bits interface {
	Add(id string) (changed bool)
	MayContain(id string) bool
	Count() uint64
	Capacity() uint64
	SizeBytes() uint64
	FillRatio() float64
	EstimatedFalsePositiveRate() float64
}

// idStore is a set of IDs in memory, made of scalable parts. Its methods are safe for
// concurrent use.
type idStore interface {
	// add reports whether the ID was new, and in which part it is.
	add(id string) (in *scalable, changed bool)
	// query returns Maybe or Absent as the ID is in the store or not. Unknown is the answer for
	// an ID of a dropped day.
	query(id string) presence.Answer
	// parts returns all parts.
	parts() []*scalable
}

// memory is the store of a filter, and during a rebuild also the next store.
type memory struct {
	// changing is held for reading during an add. So set waits for the adds to the old view.
	changing sync.RWMutex
	view     atomic.Pointer[view]
}

// view is replaced, not changed.
type view struct {
	current idStore
	next    idStore // nil, or the store that will replace current
}

func (m *memory) start(h idStore) { m.view.Store(&view{current: h}) }

func (m *memory) current() idStore { return m.view.Load().current }

func (m *memory) query(id string) presence.Answer { return m.view.Load().current.query(id) }

func (m *memory) add(id string) (in *scalable, changed bool) {
	m.changing.RLock()
	defer m.changing.RUnlock()
	v := m.view.Load()
	if v.next != nil {
		v.next.add(id)
	}
	return v.current.add(id)
}

// begin makes every later add go to next as well. When it returns, no add to the current store
// alone is running: next lacks only what was added before.
func (m *memory) begin(next idStore) {
	m.set(&view{current: m.current(), next: next})
}

// finish replaces the current store by next, which has everything by now.
//
// A lookup that is running may still read the old store, which gets no more IDs. That is
// correct: what the lookup must find was added before it began.
func (m *memory) finish(next idStore) { m.set(&view{current: next}) }

// abandon drops the next store.
func (m *memory) abandon() { m.set(&view{current: m.current()}) }

func (m *memory) set(v *view) {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.view.Store(v)
}

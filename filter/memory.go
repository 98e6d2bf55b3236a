package filter

import (
	"sync"
	"sync/atomic"
)

// bits is a set of IDs in memory that cannot grow. Its methods are safe for
// concurrent use; MayContain never waits and sees every Add that has returned.
type bits interface {
	Add(id string) (changed bool)
	MayContain(id string) bool
	Count() uint64
	Capacity() uint64
	SizeBytes() uint64
	FillRatio() float64
	EstimatedFalsePositiveRate() float64
}

// holder is a set of IDs in memory, made of stacks. Its methods are safe for
// concurrent use.
type idStore interface {
	// add reports whether anything changed, and where.
	add(id string) (in *scalable, changed bool)
	// look returns Maybe or Absent, which means no more than that the ID is not in
	// here; or Unknown for an ID that it would not have kept.
	query(id string) Answer
	// stacks returns all that it is made of.
	parts() []*scalable
}

// memory is what a filter holds, and, while it is rebuilt, what it will hold.
type memory struct {
	// changing is held for reading by whoever adds, so that whoever changes the
	// view can wait for those that add to the old one.
	changing sync.RWMutex
	view     atomic.Pointer[view]
}

// view is replaced, not changed.
type view struct {
	current idStore
	next    idStore // nil, or what is to take the place of current
}

func (m *memory) start(h idStore) { m.view.Store(&view{current: h}) }

func (m *memory) current() idStore { return m.view.Load().current }

func (m *memory) query(id string) Answer { return m.view.Load().current.query(id) }

func (m *memory) add(id string) (in *scalable, changed bool) {
	m.changing.RLock()
	defer m.changing.RUnlock()
	v := m.view.Load()
	if v.next != nil {
		v.next.add(id)
	}
	return v.current.add(id)
}

// begin has everything that is added from now on added to next as well. When it
// returns, nobody adds to the current holder alone any more: what was added before
// is all that next still lacks.
func (m *memory) begin(next idStore) {
	m.set(&view{current: m.current(), next: next})
}

// finish has next, which by now holds everything, take the place of the current
// holder.
//
// A lookup that is under way may go on to ask the old one, which is told nothing
// any more. That is no harm: what it has to find was added before it began.
func (m *memory) finish(next idStore) { m.set(&view{current: next}) }

// abandon forgets the next holder.
func (m *memory) abandon() { m.set(&view{current: m.current()}) }

func (m *memory) set(v *view) {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.view.Store(v)
}

package envoymodule

import "sync"

// mailbox brings what goroutines want done to a stream to its worker. What comes after
// the stream's end is dropped, so that nobody asks anything of an Envoy that may have
// gone. The zero value is a mailbox; it is safe for concurrent use.
type mailbox struct {
	mu     sync.Mutex
	waker  Waker // nil: not open yet, or closed
	closed bool
	tasks  []func() Step
}

// open is the worker's, before anybody posts. It may be opened again.
func (m *mailbox) open(e Envoy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waker == nil && !m.closed {
		m.waker = e.Waker()
	}
}

// post has the worker run a task.
func (m *mailbox) post(task func() Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waker != nil {
		m.tasks = append(m.tasks, task)
		m.waker.Wake() // Envoy only notes it: the task runs later
	}
}

// next returns the next task, nil if there is none.
func (m *mailbox) next() func() Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.tasks) == 0 {
		return nil
	}
	task := m.tasks[0]
	m.tasks = m.tasks[1:]
	return task
}

// close is the worker's.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waker != nil {
		m.waker.Free()
	}
	m.waker, m.closed, m.tasks = nil, true, nil
}

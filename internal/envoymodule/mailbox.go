package envoymodule

import "sync"

// mailbox passes tasks from goroutines to a stream's worker. After the stream's end, when Envoy's side may
// be gone, they run where they are posted, one at a time. A task may post others. The zero value is a
// mailbox. It is safe for concurrent use.
type mailbox struct {
	mu      sync.Mutex
	waker   Waker // nil: not open yet, or closed
	closed  bool
	running bool // a task runs after the end
	tasks   []func() Step
}

// open is called by the worker before any post. It may be called again.
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
	switch {
	case m.closed:
		m.tasks = append(m.tasks, task)
		m.run()
	case m.waker != nil:
		m.tasks = append(m.tasks, task)
		m.waker.Wake() // this only schedules the task
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

// close is called by the worker. It runs the tasks that are left.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waker != nil {
		m.waker.Free()
	}
	m.waker, m.closed = nil, true
	m.run()
}

// run runs all tasks, unless another caller does. It holds mu, but not within a task.
func (m *mailbox) run() {
	if m.running {
		return
	}
	m.running = true
	defer func() { m.running = false }()
	for len(m.tasks) > 0 {
		task := m.tasks[0]
		m.tasks = m.tasks[1:]
		func() {
			m.mu.Unlock()
			defer m.mu.Lock()
			task()
		}()
	}
}

package source

import "container/list"

// question is one query of a [Confirmer] with its callers. Confirmer.mu guards its fields until
// done is closed.
type question struct {
	id      string
	callers int
	place   *list.Element // in the queue; nil: it waits for the query before, or was taken
	done    chan struct{} // closed when the next fields are set
	exists  bool
	err     error
}

// lane holds the questions about one ID: at most one that was sent, and one that waits for it to
// end. So 200 callers at once cause two queries.
type lane struct{ sent, next *question }

// ask returns the question that a caller shares; nil after Close. The caller waits until it is
// done, or calls leave.
func (c *Confirmer) ask(id string) *question {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	l := c.lanes[id]
	if l == nil {
		l = &lane{}
		c.lanes[id] = l
	}
	if l.next == nil {
		l.next = &question{id: id, done: make(chan struct{})}
		if l.sent == nil {
			c.enqueue(l.next)
		}
	}
	l.next.callers++
	return l.next
}

// leave ends the wait of one caller. A question without callers is not sent.
func (c *Confirmer) leave(q *question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.callers--
	l := c.lanes[q.id]
	if q.callers > 0 || l == nil || l.next != q {
		return
	}
	l.next = nil
	if q.place != nil {
		c.queue.Remove(q.place)
	}
	c.dropLane(q.id, l)
}

// take returns the first question of the queue, which the caller sends; nil: the queue is empty.
// The caller holds mu.
func (c *Confirmer) take() *question {
	first := c.queue.Front()
	if first == nil {
		return nil
	}
	q := c.queue.Remove(first).(*question)
	q.place = nil
	c.lanes[q.id].sent, c.lanes[q.id].next = q, nil
	return q
}

// finish passes an answer to the callers, and enqueues the question that waited for it.
func (c *Confirmer) finish(q *question, exists bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.exists, q.err = exists, err
	close(q.done)
	l := c.lanes[q.id]
	l.sent = nil
	if l.next != nil {
		c.enqueue(l.next)
	}
	c.dropLane(q.id, l)
}

func (c *Confirmer) dropLane(id string, l *lane) {
	if l.sent == nil && l.next == nil {
		delete(c.lanes, id)
	}
}

// enqueue adds a question to the queue, and wakes or starts a worker. The caller holds mu.
func (c *Confirmer) enqueue(q *question) {
	q.place = c.queue.PushBack(q)
	switch {
	case c.idle > 0:
		c.wakeOne()
	case c.busy < c.opts.MaxQueries:
		c.startWorker()
	}
}

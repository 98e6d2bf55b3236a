package source

import (
	"context"
	"errors"
	"time"
)

const (
	// maxIdle is how long a connection without questions stays open, unless it is the last.
	maxIdle = time.Minute
	// maxAge is how old a connection gets. The next one reads the structure of the table again.
	maxAge = 5 * time.Minute
	// reconnectPause is the time between two attempts to connect to a database that is away.
	reconnectPause = 100 * time.Millisecond
	// killGrace is how much longer than the server's own limit a query may take before its
	// connection is given up.
	killGrace = 250 * time.Millisecond
)

// worker owns one connection, on which it sends one question after the other.
type worker struct {
	*Confirmer
	conn *orderConn // nil: none
}

// startWorker starts a worker. The caller holds mu.
func (c *Confirmer) startWorker() {
	c.busy++
	c.workers.Go((&worker{Confirmer: c}).run)
}

// wakeOne wakes an idle worker. The caller holds mu.
func (c *Confirmer) wakeOne() {
	c.idle--
	c.busy++
	c.wake <- struct{}{} // never blocks: there are at most MaxQueries workers
}

func (c *Confirmer) wakeAll() {
	for c.idle > 0 {
		c.wakeOne()
	}
}

func (w *worker) run() {
	defer w.disconnect()
	if !w.hasQuestion() { // it was started to connect
		_ = w.connect() // the next question tries again
	}
	for {
		q := w.await()
		if q == nil {
			return
		}
		exists, err := w.answer(q.id)
		w.finish(q, exists, err)
		w.renew()
	}
}

func (w *worker) hasQuestion() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.Len() > 0
}

// await returns the next question; nil: the worker ends.
func (w *worker) await() *question {
	for {
		w.mu.Lock()
		if !w.closed {
			if q := w.take(); q != nil {
				w.mu.Unlock()
				return q
			}
		}
		w.busy--
		if w.closed || w.retired || w.conn == nil {
			w.mu.Unlock()
			return nil
		}
		w.idle++
		w.mu.Unlock()
		if !w.sleep() {
			return nil
		}
		w.renew()
	}
}

// sleep waits for a token, or for maxIdle. It returns false if the worker ends: others are left.
func (w *worker) sleep() bool {
	timer := time.NewTimer(maxIdle)
	defer timer.Stop()
	select {
	case <-w.wake:
		return true
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.wake: // it came at the same time
		return true
	default:
	}
	w.idle--
	if w.busy+w.idle > 0 {
		return false
	}
	w.busy++
	return true
}

// answer looks an order up. It tries once more if the connection was lost while it was idle.
func (w *worker) answer(id string) (bool, error) {
	wasOpen := w.conn != nil
	if err := w.connect(); err != nil {
		return false, err
	}
	exists, err := w.exists(id)
	if err != nil && wasOpen && w.conn == nil && w.running.Err() == nil {
		if err := w.connect(); err != nil {
			return false, err
		}
		exists, err = w.exists(id)
	}
	return exists, err
}

// exists looks an order up on the connection. It closes a connection that it cannot use again.
func (w *worker) exists(id string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(w.running, w.opts.Timeout+killGrace, errServerSilent)
	defer cancel()
	exists, err := w.conn.exists(ctx, w.Confirmer, id)
	if err != nil && !errors.Is(err, errStopped) {
		w.disconnect()
	}
	return exists, err
}

// renew replaces an old connection, while no caller waits for it.
func (w *worker) renew() {
	if w.conn != nil && time.Since(w.conn.opened) > maxAge {
		w.disconnect()
		_ = w.connect() // the next question tries again
	}
}

// connect opens the connection, if there is none. After a failure, it fails for a moment without
// an attempt: a flood of creates must not become a flood of connections.
func (w *worker) connect() error {
	if w.conn != nil {
		return nil
	}
	if err := w.mayConnect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(w.running, connectLimit, errServerSilent)
	defer cancel()
	conn, err := w.open(ctx)
	w.conn = conn
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastErr, w.retryAt = err, time.Now().Add(reconnectPause)
	return err
}

// mayConnect returns the error of the last attempt to connect, unless it is time for the next one.
func (w *worker) mayConnect() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lastErr != nil && time.Now().Before(w.retryAt) {
		return w.lastErr
	}
	w.retryAt = time.Now().Add(reconnectPause) // for the other workers, if the last one failed
	return nil
}

func (w *worker) disconnect() {
	if w.conn != nil {
		w.conn.close()
		w.conn = nil
	}
}

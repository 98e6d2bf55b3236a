package tests

import (
	"net"
	"sync"
	"testing"
	"time"
)

// wire stands between two processes, and can break.
type wire struct {
	listener net.Listener
	upstream string
	wg       sync.WaitGroup

	mu    sync.Mutex
	state wireState
	delay time.Duration // of what arrives, once or twice: the rest waits meanwhile
	conns map[net.Conn]struct{}
}

// wireState is what becomes of bytes and connections.
type wireState int8

const (
	whole wireState = iota
	cut             // connections break, and so do new ones
	mute            // connections stay open, and nothing arrives
)

// newWire starts one to an address.
func newWire(t testing.TB, upstream string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{listener: l, upstream: upstream, conns: make(map[net.Conn]struct{})}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.set(cut)
		w.wg.Wait()
	})
	return w
}

func (w *wire) addr() string { return w.listener.Addr().String() }

func (w *wire) set(state wireState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = state
	for conn := range w.conns {
		if state == cut {
			_ = conn.Close()
		}
	}
}

// slow has everything arrive later.
func (w *wire) slow(delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
}

func (w *wire) lag() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.delay
}

func (w *wire) is(state wireState) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state == state
}

// open has a connection closed when the wire is cut.
func (w *wire) open(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[conn] = struct{}{}
	if w.state == cut {
		_ = conn.Close()
	}
}

func (w *wire) close(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, conn)
	_ = conn.Close()
}

func (w *wire) accept() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		if w.is(cut) {
			_ = from.Close()
			continue
		}
		to, err := net.Dial("tcp", w.upstream)
		if err != nil {
			_ = from.Close()
			continue
		}
		w.open(from)
		w.open(to)
		w.wg.Go(func() { w.pass(from, to) })
		w.wg.Go(func() { w.pass(to, from) })
	}
}

// pass copies one direction. A mute wire swallows what comes, and the end as well.
func (w *wire) pass(from, to net.Conn) {
	defer w.close(from)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		time.Sleep(w.lag()) // the fault itself: mostly none
		if n > 0 && !w.is(mute) {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !w.is(mute) {
				_ = to.Close()
			}
			return
		}
	}
}

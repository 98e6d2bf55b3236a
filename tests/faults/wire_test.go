package faults

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// wire is the network between clients and a Redis: it carries bytes both ways
// and does to each packet what the plan says. Like a network, it delivers what
// was sent before the sender hung up, and late if it must.
//
// A packet is what one read of a socket gives. A client of go-redis writes a
// command, or a pipeline, at once and waits for the answer, so a packet is one
// question or the answers to one.
type wire struct {
	upstream string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	plan  func(packet) fate
	tally map[string]int // texts that are counted in what clients say
	conns map[net.Conn]struct{}
	done  bool
}

// packet is what a plan decides on.
type packet struct {
	ask   bool     // from a client to Redis, not an answer
	link  net.Conn // the client's end of its connection
	bytes []byte
}

// script reports whether the packet calls a script.
func (p packet) script() bool { return p.ask && bytes.Contains(p.bytes, []byte("\r\neval")) }

// says reports whether a text is in the packet.
func (p packet) says(text string) bool { return bytes.Contains(p.bytes, []byte(text)) }

// fate is what becomes of a packet. The zero value lets it pass.
type fate struct {
	late time.Duration   // it arrives so much later, and what follows it behind it
	till <-chan struct{} // it arrives once this is closed
	drop bool            // it never arrives
	cut  bool            // then the connection breaks
}

// newWire returns a wire to a Redis.
func newWire(t testing.TB, upstream string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{upstream: upstream, listener: l, conns: make(map[net.Conn]struct{})}
	w.wg.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

func (w *wire) addr() string { return w.listener.Addr().String() }

// set gives the packets from now on another plan; nil lets all of them pass. The
// plan is called by one goroutine at a time.
func (w *wire) set(plan func(packet) fate) {
	w.mu.Lock()
	w.plan = plan
	w.mu.Unlock()
}

// catch makes a plan by which the first script call that has a text in it, and what
// follows on its connection, arrives only when let is closed.
func (w *wire) catch(text string) (caught <-chan struct{}, let chan<- struct{}) {
	reached, till := make(chan struct{}), make(chan struct{})
	once := true
	w.set(func(p packet) fate {
		if !once || !p.script() || !p.says(text) {
			return fate{}
		}
		once = false
		close(reached)
		return fate{till: till}
	})
	return reached, till
}

// count returns a function that tells how often clients have said a text since.
func (w *wire) count(text string) func() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tally == nil {
		w.tally = make(map[string]int)
	}
	w.tally[text] = 0
	return func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.tally[text]
	}
}

func (w *wire) fate(p packet) fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	for text := range w.tally {
		if p.ask {
			w.tally[text] += bytes.Count(p.bytes, []byte(text))
		}
	}
	if w.plan == nil {
		return fate{}
	}
	return w.plan(p)
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.mu.Lock()
		upstream := w.upstream
		w.mu.Unlock()
		server, err := net.Dial("tcp", upstream)
		if err != nil {
			client.Close()
			continue
		}
		if !w.add(client, server) {
			return
		}
		w.wg.Go(func() { w.carry(client, server, true) })
		w.wg.Go(func() { w.carry(server, client, false) })
	}
}

// add remembers the connections to close, unless it is over.
func (w *wire) add(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if w.done {
			c.Close()
		}
		w.conns[c] = struct{}{}
	}
	return !w.done
}

// carry takes packets one way, until the sender hangs up or the wire is cut.
func (w *wire) carry(from, to net.Conn, ask bool) {
	defer w.hangUp(to)
	link := from
	if !ask {
		link = to
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			f := w.fate(packet{ask: ask, link: link, bytes: buffer[:n]})
			if f.till != nil {
				<-f.till
			}
			if f.late > 0 {
				<-time.After(f.late)
			}
			if !f.drop {
				if _, err := to.Write(buffer[:n]); err != nil {
					w.hangUp(from)
					return
				}
			}
			if f.cut {
				w.hangUp(from)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) hangUp(c net.Conn) {
	c.Close()
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
}

// close cuts what is left and waits.
func (w *wire) close() {
	w.mu.Lock()
	w.done = true
	for c := range w.conns {
		c.Close()
	}
	w.mu.Unlock()
	w.listener.Close()
	w.wg.Wait()
}

// move leads to another Redis from now on, and breaks every connection there is.
func (w *wire) move(upstream string) {
	w.mu.Lock()
	w.upstream = upstream
	w.mu.Unlock()
	w.cut()
}

// cut breaks every connection there is.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}

// Package register is what the locks of the fault tests guard: numbers that are
// read and written in two steps by other processes, as a service reads an order
// and writes it back.
//
// Start a [Server] with [Listen] and talk to it through a [Client]. The server
// keeps the history of what was done, by its own clock, so that it is complete
// even for a process that was killed half way.
package register

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Guard is how a server looks at fences.
type Guard int

// The guards.
const (
	// Unfenced takes every write.
	Unfenced Guard = iota
	// WritesFenced refuses a write whose fence is smaller than the greatest that
	// wrote before.
	WritesFenced
	// Fenced refuses a read or a write whose fence is smaller than the greatest
	// seen, be it at a read or at a write.
	Fenced
)

// Outcome is what became of a section.
type Outcome int

// The outcomes.
const (
	Open    Outcome = iota // read, and not written (yet)
	Applied                // written
	Refused                // not written, for its fence
)

// Section is one reading of a number and the writing that followed. Times are
// those of the server, since it started.
type Section struct {
	Worker  int    // who did it
	Key     string // of the number
	Fence   int64
	Read    int64 // the value that was found
	Wrote   int64 // the value that was to be written, unique
	Call    time.Duration
	Return  time.Duration // of an open section: 0
	Outcome Outcome
}

// Server keeps the numbers. It is safe for concurrent use.
type Server struct {
	guard    Guard
	start    time.Time
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	cells    map[string]*cell
	sections []*Section
	conns    map[net.Conn]struct{}
	closed   bool
	onRead   func(*Section)
	changed  chan struct{}
}

// cell is one number.
type cell struct{ value, fence int64 }

// Listen starts a server on a free port of 127.0.0.1.
func Listen(guard Guard) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a register: %w", err)
	}
	s := &Server{
		guard: guard, start: time.Now(), listener: l,
		cells: make(map[string]*cell), conns: make(map[net.Conn]struct{}), changed: make(chan struct{}),
	}
	s.wg.Go(s.accept)
	return s, nil
}

// Addr returns where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// OnRead has a function called at each reading, before it is answered: the worker
// is inside its section for as long as it takes. The section is a copy.
func (s *Server) OnRead(f func(*Section)) {
	s.mu.Lock()
	s.onRead = f
	s.mu.Unlock()
}

// Sections returns the history so far.
func (s *Server) Sections() []Section {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Section, len(s.sections))
	for i, section := range s.sections {
		list[i] = *section
	}
	return list
}

// Until blocks until the history fulfils a condition, and reports whether it did
// before the time was over.
func (s *Server) Until(limit time.Duration, ok func([]Section) bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if ok(s.Sections()) {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}

// Close ends the connections and waits for what it started.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			conn.Close()
		}
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(conn) })
	}
}

func (s *Server) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var q request
		if err := in.Decode(&q); err != nil {
			return // the worker has gone, or was killed
		}
		var a response
		if q.Section == 0 {
			a = s.read(q)
		} else {
			a = s.write(q)
		}
		if err := out.Encode(a); err != nil {
			return
		}
	}
}

// request reads a number and opens a section, or writes and closes it.
type request struct {
	Worker  int    `json:"worker"`
	Key     string `json:"key"`
	Fence   int64  `json:"fence"`
	Section int64  `json:"section"` // 0 to read; to write, that of the answer to the reading
}

type response struct {
	OK      bool  `json:"ok"` // not refused
	Value   int64 `json:"value"`
	Section int64 `json:"section"` // the value to write; its number in the history, from 1
}

func (s *Server) read(q request) response {
	s.mu.Lock()
	c := s.cells[q.Key]
	if c == nil {
		c = &cell{}
		s.cells[q.Key] = c
	}
	if s.guard == Fenced {
		if q.Fence < c.fence {
			s.mu.Unlock()
			return response{}
		}
		c.fence = q.Fence
	}
	section := &Section{
		Worker: q.Worker, Key: q.Key, Fence: q.Fence, Read: c.value,
		Wrote: int64(len(s.sections) + 1), Call: time.Since(s.start),
	}
	s.sections = append(s.sections, section)
	inside, seen := *section, s.onRead
	s.tell()
	s.mu.Unlock()
	if seen != nil {
		seen(&inside)
	}
	return response{OK: true, Value: inside.Read, Section: inside.Wrote}
}

func (s *Server) write(q request) response {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Section < 1 || q.Section > int64(len(s.sections)) || s.sections[q.Section-1].Outcome != Open {
		return response{} // a worker that asks twice
	}
	section := s.sections[q.Section-1]
	c := s.cells[section.Key]
	section.Return = time.Since(s.start)
	defer s.tell()
	if s.guard != Unfenced {
		if section.Fence < c.fence {
			section.Outcome = Refused
			return response{}
		}
		c.fence = section.Fence
	}
	c.value = section.Wrote
	section.Outcome = Applied
	return response{OK: true, Value: c.value}
}

// tell wakes who waits for a change. The mutex is held.
func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Worker returns the sections of one worker.
func Worker(sections []Section, worker int) []Section {
	return slices.DeleteFunc(slices.Clone(sections), func(s Section) bool { return s.Worker != worker })
}

// Count returns how many sections had an outcome.
func Count(sections []Section, o Outcome) (n int) {
	for _, s := range sections {
		if s.Outcome == o {
			n++
		}
	}
	return n
}

package faults

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/faults/register"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	// shortLease is the lease of the workers: short, so that faults outlast it.
	shortLease = 500 * time.Millisecond
	// tries bounds how often a violation is looked for where it is expected.
	tries = 5
)

// TestOvertaken stops a worker between reading and writing until its lease has
// ended and another worker was let in, and lets it go on. This is what no lock can
// prevent. With the fence the register refuses the late write; without it, or
// with the fence looked at when writing alone, the checker has to see the harm.
func TestOvertaken(t *testing.T) {
	for _, c := range []struct {
		name    string
		guard   register.Guard
		early   bool // it goes on before the other has written
		violate bool
	}{
		{"without fence", register.Unfenced, false, true},
		{"without fence, before the other writes", register.Unfenced, true, true},
		{"fence at the write, before the other writes", register.WritesFenced, true, true},
		{"fence at the write", register.WritesFenced, false, false},
		{"fence", register.Fenced, false, false},
		{"fence, before the other writes", register.Fenced, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redis := bedtest.New(t).Redis().Addr()
			for range tries {
				history, stopped := overtake(t, redis, c.guard, c.early)
				if !c.violate {
					mustBeLinearizable(t, history)
					if stopped.Outcome != register.Refused {
						t.Errorf("the write of the one that was stopped was not refused: %+v", stopped)
					}
					return
				}
				if !linearizable(t, history) {
					return
				}
			}
			t.Errorf("no violation in %d tries: the check sees nothing", tries)
		})
	}
}

// overtake returns the history and the section during which a worker was stopped.
func overtake(t *testing.T, redis string, guard register.Guard, early bool) ([]register.Section, register.Section) {
	t.Helper()
	reg := listen(t, guard)
	args := flags("register", reg.Addr(), "redis", redis, "lease", shortLease)
	workers := []*worker{startWorker(t, 0, args...), startWorker(t, 1, args...)}

	// The readings of both are held up at the register, each for its own event.
	inside, goOn := make(chan register.Section), make(chan struct{})
	written := make(chan struct{})
	var caught atomic.Int64 // the section of worker 0
	reg.OnRead(func(s *register.Section) {
		switch {
		case s.Worker == 0 && s.Wrote > 10 && caught.CompareAndSwap(0, s.Wrote): // well under way
			workers[0].stop()
			inside <- *s
			<-goOn
		case s.Worker == 1 && early && caught.Load() > 0 && s.Wrote > caught.Load():
			select {
			case inside <- *s:
			case <-written:
			}
			<-written
		}
	})
	stopped := <-inside
	if early {
		<-inside // the other has read
	} else if !reg.Until(eventually, func(all []register.Section) bool {
		return register.Count(register.Worker(all[stopped.Wrote:], 1), register.Applied) > 0
	}) {
		t.Fatal("nobody got the lock after the lease")
	}
	workers[0].cont()
	close(goOn)
	if !reg.Until(eventually, func(all []register.Section) bool {
		return all[stopped.Wrote-1].Outcome != register.Open
	}) {
		t.Fatal("the one that was stopped never wrote")
	}
	close(written)
	if !reg.Until(eventually, func(all []register.Section) bool {
		return register.Count(register.Worker(all[stopped.Wrote:], 1), register.Applied) > 0
	}) {
		t.Fatal("the other never wrote")
	}
	for _, w := range workers {
		w.finish()
	}
	history := reg.Sections()
	return history, history[stopped.Wrote-1]
}

func listen(t *testing.T, guard register.Guard) *register.Server {
	t.Helper()
	reg, err := register.Listen(guard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reg.Close)
	return reg
}

// TestWithoutLock checks that the checker sees what the lock prevents.
func TestWithoutLock(t *testing.T) {
	for range tries {
		reg := listen(t, register.Unfenced)
		var workers []*worker
		for i := range 4 {
			workers = append(workers, startWorker(t, i, flags("register", reg.Addr(), "unlocked", true, "keys", 3)...))
		}
		if !reg.Until(eventually, func(all []register.Section) bool { return len(all) > 400 }) {
			t.Fatal("the workers do nothing")
		}
		for _, w := range workers {
			w.finish()
		}
		if !linearizable(t, reg.Sections()) {
			return
		}
	}
	t.Errorf("no violation in %d tries: the check sees nothing", tries)
}

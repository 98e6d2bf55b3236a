package redisson

import (
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
)

// TestReadWrite has readers and writers of both sides at one lock.
func TestReadWrite(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, p := range s.pairs(t) {
		t.Run("writers wait, the last reader is where "+p.name, func(t *testing.T) { writersWait(t, s, p) })
		t.Run("readers wait, the writer is where "+p.name, func(t *testing.T) { readersWait(t, s, p) })
	}
}

// writersWait has readers of both sides inside: a writer gets in when the last of
// them has left, and nobody before.
func writersWait(t *testing.T, s *stack, p pair) {
	name := t.Name()
	last := take(t, p.holder, read, name, lease)
	var others []*grant
	for range 2 {
		others = append(others, take(t, p.holder, read, name, lease), take(t, p.waiter, read, name, lease))
	}
	waiter := s.wait(t, p.waiter, write, name, toBeWoken)
	for _, g := range others {
		release(t, g)
		for _, side := range []party{p.holder, p.waiter} {
			if value(side.ask(t.Context(), write, name, lease, notAtAll))(t) != nil {
				t.Fatal("a writer is in beside a reader")
			}
		}
	}
	select {
	case <-waiter:
		t.Fatal("the writer is in beside a reader")
	default:
	}
	release(t, last)
	release(t, granted(t, waiter))
}

// readersWait has a writer inside, and readers of both sides wait: one release
// lets all of them in, beside each other.
func readersWait(t *testing.T, s *stack, p pair) {
	name := t.Name()
	writer := take(t, p.holder, write, name, lease)
	var waiters []<-chan outcome[*grant]
	for range 3 {
		for _, side := range []party{p.holder, p.waiter} {
			waiters = append(waiters, s.wait(t, side, read, name, toBeWoken))
		}
	}
	for _, w := range waiters {
		select {
		case <-w:
			t.Fatal("a reader is in beside the writer")
		default:
		}
	}
	release(t, writer)
	var readers []*grant
	for _, w := range waiters {
		readers = append(readers, granted(t, w))
	}
	for _, g := range readers {
		release(t, g)
	}
	if n := s.redis.Exists(t.Context(), name).Val(); n != 0 {
		t.Error("something is left of the lock")
	}
}

// TestReaderAtAnExclusiveLock has a Java service take the lock of an order as a
// read-write lock, by mistake. Redisson lets it in; it must not have Redis count to the
// number in a field of ours, and answer nobody meanwhile.
func TestReaderAtAnExclusiveLock(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, kind := range []sort{exclusive, fair} {
		t.Run(kind.name, func(t *testing.T) {
			take(t, newGoParty(t, s), kind, t.Name(), lease)
			reader := s.thread().ReadLock(t.Name())
			if !value(reader.TryLock(t.Context(), 0, lease))(t) {
				t.Skip("this Redisson keeps it out")
			}
			must(t, reader.Unlock(t.Context())) // Redisson deletes our lock with its own
			must(t, s.redis.Ping(t.Context()).Err())
		})
	}
}

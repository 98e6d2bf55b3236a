package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCandidates holds each to what it is measured for: two processes exclude
// each other, who waits gives up or gets the lock, and a wait ends with its
// context.
func TestCandidates(t *testing.T) {
	server := bedtest.New(t).Redis()
	control := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer control.Close()
	for _, c := range candidates() {
		t.Run(c.name, func(t *testing.T) {
			if err := control.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			open := func(p patience) caller {
				t.Helper()
				in, err := c.open(server.Addr(), p)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(in.close)
				return in.caller()
			}
			holder, trier, waiter := open(patience{}), open(patience{tries: 2, every: time.Millisecond}), open(patience{upTo: time.Minute})
			lock(t, holder)
			if err := trier.lock(t.Context(), oneKey); !errors.Is(err, errBusy) {
				t.Fatalf("two tries at a lock that is held: %v, want errBusy", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := waiter.lock(ctx, oneKey); err == nil || !gaveUp(ctx, err) {
				t.Fatalf("a wait whose context ended: %v", err)
			}
			granted := make(chan error, 1)
			go func() { granted <- waiter.lock(t.Context(), oneKey) }()
			unlock(t, holder)
			if err := <-granted; err != nil {
				t.Fatalf("waiting for a lock that was released: %v", err)
			}
			unlock(t, waiter)
			lock(t, trier)
			unlock(t, trier)
		})
	}
}

func lock(t *testing.T, c caller) {
	t.Helper()
	if err := c.lock(t.Context(), oneKey); err != nil {
		t.Fatal(err)
	}
}

func unlock(t *testing.T, c caller) {
	t.Helper()
	if err := c.unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLostLock deletes the lock of those that tell of it at the release.
func TestLostLock(t *testing.T) {
	server := bedtest.New(t).Redis()
	control := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer control.Close()
	for _, c := range candidates() {
		if c.name == nameRueidislock {
			continue // it ends the context of the lock, and says nothing
		}
		t.Run(c.name, func(t *testing.T) {
			in, err := c.open(server.Addr(), patience{})
			if err != nil {
				t.Fatal(err)
			}
			defer in.close()
			holder := in.caller()
			lock(t, holder)
			if err := control.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := holder.unlock(t.Context()); err == nil {
				t.Error("the release of a lock that was deleted says nothing")
			}
		})
	}
}

func TestRetry(t *testing.T) {
	cause := errors.New("no answer")
	tests := []struct {
		name  string
		p     patience
		grant int   // the try that is granted; 0: none
		fail  error // of every try
		want  error
		tries int
	}{
		{"one try", patience{}, 0, nil, errBusy, 1},
		{"three tries", patience{tries: 3, every: time.Microsecond}, 0, nil, errBusy, 3},
		{"granted at the second", patience{tries: 3, every: time.Microsecond}, 2, nil, nil, 2},
		{"as many as it takes", patience{upTo: time.Minute}, 3, nil, nil, 3},
		{"an error", patience{upTo: time.Minute}, 0, cause, cause, 1},
	}
	for _, tt := range tests {
		n := 0
		err := tt.p.retry(t.Context(), func() (bool, error) { n++; return n == tt.grant, tt.fail })
		if !errors.Is(err, tt.want) || n != tt.tries {
			t.Errorf("%s: %v after %d tries, want %v after %d", tt.name, err, n, tt.want, tt.tries)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := patience{upTo: time.Minute}.retry(ctx, func() (bool, error) { cancel(); return false, nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the context ended: %v", err)
	}
}

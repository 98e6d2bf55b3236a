// Package followtest runs the followers of databases in tests, and records what they emit. Start
// with [Start].
package followtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// Follower is the interface of all followers.
type Follower interface {
	Follow(ctx context.Context, from string, emit follow.Emit, caughtUp follow.CaughtUp) error
}

// timeout is longer than any step takes on a busy machine.
const timeout = 60 * time.Second

// Run is one call of Follow, with all that it emits. It is safe for concurrent use.
type Run struct {
	tb     testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed

	mu       sync.Mutex
	ids      []string
	chunks   []Chunk
	caughtUp []time.Time
}

// Chunk is one call of Emit.
type Chunk struct {
	IDs        int
	Checkpoint string
}

// Start follows from a checkpoint until the test ends.
func Start(tb testing.TB, f Follower, from string) *Run {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	r := &Run{tb: tb, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = f.Follow(ctx, from, r.emit, func(at time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.caughtUp = append(r.caughtUp, at)
		})
	}()
	tb.Cleanup(func() { r.Stop() })
	return r
}

func (r *Run) emit(_ context.Context, ids []string, checkpoint string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, ids...)
	r.chunks = append(r.chunks, Chunk{len(ids), checkpoint})
	return nil
}

// Stop ends the run and returns the last checkpoint that was emitted.
func (r *Run) Stop() string {
	r.cancel()
	<-r.done
	return r.Last()
}

// Last returns the last checkpoint that was emitted, "" if there was none.
func (r *Run) Last() string {
	chunks := r.Chunks()
	if len(chunks) == 0 {
		return ""
	}
	return chunks[len(chunks)-1].Checkpoint
}

// Chunks returns all calls of Emit.
func (r *Run) Chunks() []Chunk {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.chunks)
}

// IDs returns the emitted IDs in order.
func (r *Run) IDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.ids...)
}

// CaughtUpAt returns the times passed to CaughtUp.
func (r *Run) CaughtUpAt() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.caughtUp)
}

// CaughtUpSince reports whether all transactions committed by some time after since were emitted.
func (r *Run) CaughtUpSince(since time.Time) bool {
	caught := r.CaughtUpAt()
	return len(caught) > 0 && caught[len(caught)-1].After(since)
}

// WaitCaughtUp waits until all transactions committed before the call were emitted.
func (r *Run) WaitCaughtUp() {
	r.tb.Helper()
	if err := r.CaughtUpOrEnded(); err != nil {
		r.tb.Fatalf("it ended: %v", err)
	}
}

// CaughtUpOrEnded is WaitCaughtUp for a run that may end before. It returns the error of its end.
func (r *Run) CaughtUpOrEnded() (err error) {
	r.tb.Helper()
	now := time.Now()
	r.eventually("all that was committed was emitted", func() bool {
		if r.Ended() {
			err = r.err // Follow never ends without one
		}
		return err != nil || r.CaughtUpSince(now)
	})
	return err
}

// Want waits until the follower has caught up, and compares the IDs.
func (r *Run) Want(ids ...string) {
	r.tb.Helper()
	r.WaitCaughtUp()
	if diff := cmp.Diff(append([]string{}, ids...), r.IDs()); diff != "" {
		r.tb.Errorf("emitted (-want +got):\n%s", diff)
	}
}

// Ended reports whether the run has ended.
func (r *Run) Ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// WantError waits for the end of the run. The error must match is, unless that is nil. It must
// contain text and none of the secrets, and be one line.
func (r *Run) WantError(is error, text string, secrets ...string) {
	r.tb.Helper()
	r.eventually("it ends", r.Ended)
	err := r.err
	switch {
	case err == nil || !strings.Contains(err.Error(), text):
		r.tb.Errorf("error %v, want %q in it", err, text)
	case is != nil && !errors.Is(err, is):
		r.tb.Errorf("error %v, want one that is %v", err, is)
	case is == nil && (errors.Is(err, follow.ErrGone) || errors.Is(err, follow.ErrUnsure)):
		r.tb.Errorf("error %v, want one that a caller can do nothing about", err)
	case strings.Contains(err.Error(), "\n"):
		r.tb.Errorf("error %q has several lines", err)
	}
	for _, secret := range secrets {
		if err != nil && strings.Contains(err.Error(), secret) {
			r.tb.Errorf("error %q has a secret in it", err)
		}
	}
}

func (r *Run) eventually(what string, ok func() bool) {
	r.tb.Helper()
	deadline := time.Now().Add(timeout)
	for !ok() {
		if time.Now().After(deadline) {
			r.tb.Fatalf("never happened: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// Store is a caller that stores what it receives, over several runs. It is for one run at a time.
type Store struct {
	Checkpoint string // the last checkpoint
	IDs        map[string]bool
	Emitted    int // number of IDs, with repetitions
}

// Emit implements follow.Emit.
func (k *Store) Emit(ctx context.Context, ids []string, checkpoint string) error {
	if ctx.Err() != nil {
		return ctx.Err() // it is too late to store them
	}
	if k.IDs == nil {
		k.IDs = map[string]bool{}
	}
	for _, id := range ids {
		k.IDs[id] = true
	}
	k.Checkpoint, k.Emitted = checkpoint, k.Emitted+len(ids)
	return nil
}

// Begin runs a follower until it has emitted its first checkpoint.
func (k *Store) Begin(ctx context.Context, f Follower) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := f.Follow(ctx, "", func(ctx context.Context, ids []string, checkpoint string) error {
		defer cancel()
		return k.Emit(ctx, ids, checkpoint)
	}, func(time.Time) {})
	if k.Checkpoint != "" {
		return nil
	}
	return err
}

// CatchUp runs a follower until all transactions committed before the call were emitted.
func (k *Store) CatchUp(ctx context.Context, f Follower) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	since, caught := time.Now(), false
	err := f.Follow(ctx, k.Checkpoint, k.Emit, func(at time.Time) {
		if at.After(since) {
			caught = true
			cancel()
		}
	})
	if caught {
		return nil
	}
	return err
}

// Oracle checks each call of CaughtUp: every write acknowledged before its time must have been
// emitted. Writers record what they wrote once it is acknowledged.
type Oracle struct {
	tb testing.TB

	mu      sync.Mutex
	writes  []write
	emitted map[string]bool
	reports int
	covered int // writes before the last report
}

type write struct {
	id string
	at time.Time
}

// NewOracle returns an oracle for one run.
func NewOracle(tb testing.TB) *Oracle { return &Oracle{tb: tb, emitted: map[string]bool{}} }

// Committed records that a row was just committed.
func (c *Oracle) Committed(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, write{id, time.Now()})
}

// Emit implements follow.Emit.
func (c *Oracle) Emit(_ context.Context, ids []string, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.emitted[id] = true
	}
	return nil
}

// CaughtUp implements follow.CaughtUp.
func (c *Oracle) CaughtUp(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports++
	c.covered = 0
	for _, w := range c.writes {
		if !w.at.Before(at) {
			continue
		}
		c.covered++
		if !c.emitted[w.id] {
			c.tb.Errorf("%s was committed %v before the moment, and not emitted", w.id, at.Sub(w.at))
		}
	}
}

// Reports returns the number of calls of CaughtUp.
func (c *Oracle) Reports() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports
}

// Writes returns the number of rows, and how many of them the last report covered.
func (c *Oracle) Writes() (all, sure int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.writes), c.covered
}

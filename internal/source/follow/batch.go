package follow

import (
	"context"
	"time"
)

const (
	// MaxChunk is the largest number of IDs in one call of [Emit].
	MaxChunk = 1000
	// maxHoldBack is how long successive transactions may be held back, so that one call emits
	// them.
	maxHoldBack = 2 * time.Millisecond
)

// Batch collects IDs and emits them. It is for one goroutine.
type Batch struct {
	emit       Emit
	checkpoint func() string // returns the checkpoint after the last commit

	ids         []string
	open        bool      // the transaction under way has IDs, emitted or not
	unflushed   bool      // a transaction has ended, and its checkpoint was not emitted
	heldSince   time.Time // when the first such transaction ended
	lastEmitted string    // the last checkpoint emitted
}

// NewBatch returns an empty batch. checkpoint returns, at any time, the checkpoint after the last
// transaction for which Commit was called. lastEmitted is the checkpoint that the caller of Follow
// has.
func NewBatch(emit Emit, checkpoint func() string, lastEmitted string) *Batch {
	return &Batch{emit: emit, checkpoint: checkpoint, lastEmitted: lastEmitted, ids: make([]string, 0, MaxChunk)}
}

// Add adds an ID of the transaction under way. It emits a full chunk with the checkpoint before
// this transaction. After a crash, the whole transaction is emitted again.
func (b *Batch) Add(ctx context.Context, id string) error {
	b.ids, b.open = append(b.ids, id), true
	if len(b.ids) < MaxChunk {
		return nil
	}
	return b.emitAll(ctx)
}

// Commit ends a transaction, after the checkpoint has moved behind it. Flush emits it.
func (b *Batch) Commit() {
	if !b.open {
		return
	}
	b.open = false
	if !b.unflushed {
		b.unflushed, b.heldSince = true, time.Now()
	}
}

// Flush emits committed transactions. If more changes wait, it may hold the IDs back for up to 2
// ms. One call of Emit for many small transactions is several times as fast. Call it after every
// change.
func (b *Batch) Flush(ctx context.Context, more bool) error {
	if !b.unflushed || more && time.Since(b.heldSince) < maxHoldBack {
		return nil
	}
	return b.emitAll(ctx)
}

// Discard removes the IDs that were not emitted, as after a lost connection.
func (b *Batch) Discard() {
	clear(b.ids)
	b.ids, b.open, b.unflushed = b.ids[:0], false, false
}

// Advance emits a checkpoint that has moved, even without IDs.
func (b *Batch) Advance(ctx context.Context) error {
	if len(b.ids) == 0 && !b.unflushed && b.checkpoint() == b.lastEmitted {
		return nil
	}
	return b.emitAll(ctx)
}

// Flushed reports whether all committed transactions were emitted.
func (b *Batch) Flushed() bool { return !b.unflushed }

// LastEmitted returns the last checkpoint that was emitted.
func (b *Batch) LastEmitted() string { return b.lastEmitted }

func (b *Batch) emitAll(ctx context.Context) error {
	checkpoint := b.checkpoint()
	if err := b.emit(ctx, b.ids, checkpoint); err != nil {
		return Permanent(err)
	}
	clear(b.ids) // releases the strings
	b.ids, b.unflushed, b.lastEmitted = b.ids[:0], false, checkpoint
	return nil
}

package follow

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"
)

const (
	// MaxChunk is the most IDs that one call of [Emit] gets.
	MaxChunk = 1000
	// MaxIDBytes is the length of the longest ID, as it is in package source.
	MaxIDBytes = 256

	// together is for how long transactions that follow each other without a gap are
	// held back, to be emitted in one call.
	maxHoldBack = 2 * time.Millisecond
)

// Batch collects IDs and emits them. It is for one goroutine.
type Batch struct {
	emit       Emit
	checkpoint func() string // from where to go on after the last commit

	ids         []string
	open        bool      // the transaction under way has IDs, whether emitted or not
	unflushed   bool      // a transaction has ended whose place was not emitted
	heldSince   time.Time // when the first such ended
	lastEmitted string    // the place emitted last
}

// NewBatch returns an empty batch. place returns, at any time, the place after the
// last transaction for which Commit was called; last is the one to which the caller
// of Follow got.
func NewBatch(emit Emit, checkpoint func() string, lastEmitted string) *Batch {
	return &Batch{emit: emit, checkpoint: checkpoint, lastEmitted: lastEmitted, ids: make([]string, 0, MaxChunk)}
}

// Add takes an ID of the transaction under way. A full chunk is emitted with the
// place before this transaction: after a crash it is told again as a whole.
func (b *Batch) Add(ctx context.Context, id string) error {
	b.ids, b.open = append(b.ids, id), true
	if len(b.ids) < MaxChunk {
		return nil
	}
	return b.emitAll(ctx)
}

// Commit ends a transaction, after the place has moved behind it. Settle emits it.
func (b *Batch) Commit() {
	if !b.open {
		return
	}
	b.open = false
	if !b.unflushed {
		b.unflushed, b.heldSince = true, time.Now()
	}
}

// Settle emits what was committed, unless more changes wait to be read: then it may
// hold the IDs back for a moment, since one call of Emit for many small transactions
// is a multiple faster. It is to be called after every change.
func (b *Batch) Flush(ctx context.Context, more bool) error {
	if !b.unflushed || more && time.Since(b.heldSince) < maxHoldBack {
		return nil
	}
	return b.emitAll(ctx)
}

// Drop forgets what was not emitted, as after a lost connection.
func (b *Batch) Discard() {
	clear(b.ids)
	b.ids, b.open, b.unflushed = b.ids[:0], false, false
}

// Advance emits a place that has moved, even if there are no IDs.
func (b *Batch) Advance(ctx context.Context) error {
	if len(b.ids) == 0 && !b.unflushed && b.checkpoint() == b.lastEmitted {
		return nil
	}
	return b.emitAll(ctx)
}

// Settled tells whether all that was committed was emitted.
func (b *Batch) Flushed() bool { return !b.unflushed }

// Last returns the place that was emitted last.
func (b *Batch) LastEmitted() string { return b.lastEmitted }

func (b *Batch) emitAll(ctx context.Context) error {
	checkpoint := b.checkpoint()
	if err := b.emit(ctx, b.ids, checkpoint); err != nil {
		return Permanent(err)
	}
	clear(b.ids) // lets go of the strings
	b.ids, b.unflushed, b.lastEmitted = b.ids[:0], false, checkpoint
	return nil
}

// Check returns why text cannot be an order's ID, "" if it can.
func CheckID(id string) string {
	switch {
	case id == "":
		return "the ID is empty"
	case len(id) > MaxIDBytes:
		return fmt.Sprintf("the ID has more than %d bytes", MaxIDBytes)
	case !utf8.ValidString(id):
		return "the ID is not UTF-8"
	}
	for _, r := range id {
		if r < ' ' || r == 0x7f {
			return "the ID has control characters"
		}
	}
	return ""
}

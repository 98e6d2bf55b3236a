package changelog

import "fmt"

// Mark is a place in a log, behind the last entry that was applied. The zero Mark
// is the beginning of whatever log there is.
type Mark struct {
	Epoch string `json:"epoch"` // the log's identity
	Seq   uint64 `json:"seq"`   // of the last entry applied, 0 before the first
	Nonce string `json:"nonce"` // of that entry: after a failover another one may have its number
}

// Mark returns how far the log has been applied. All entries up to there had been
// applied before the call. A log that breaks keeps the mark that it had.
func (l *Log) Mark() Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark
}

// Resume has Run begin behind a mark rather than at the beginning of the log, for
// someone who has everything up to there. It must be called before Run.
//
// Run first sees that the log is the one of the mark, and has the mark's entry. If
// not it calls lost with the reason, once, and goes on as if it had begun at the
// beginning of the log that there is. Lost must not block. No Wait returns nil
// between finding out and the return of lost.
func (l *Log) Resume(at Mark, lost func(reason error)) {
	if at.Epoch == "" {
		at = Mark{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.lost = at, lost
	l.position.Store(at.Seq)
}

// resume takes the mark that the reader is to begin behind.
func (r *reader) resume() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.from = r.log.mark
	r.last = entry{seq: r.from.Seq, nonce: r.from.Nonce}
}

// startOver gives up the mark, which the log does not have any more.
func (r *reader) startOver(why error) {
	l := r.log
	r.from, r.last = Mark{}, entry{}
	l.position.Store(0)
	l.mu.Lock()
	l.mark = Mark{}
	l.mu.Unlock()
	l.lost(why)
}

// breakage is an error that Is [ErrBroken].
type breakage struct {
	keys  []string
	cause error
}

// Error says what is wrong and what heals it. The order of the advice counts: a
// creation after the keys are gone is in the new log, one before that is in the
// sources.
func (b *breakage) Error() string {
	return fmt.Sprintf("%v: %s: %v; delete %s and %s, then bring the filter's sources up to date, then restart every ordergate",
		ErrBroken, b.keys[0], b.cause, b.keys[0], b.keys[1])
}

func (b *breakage) Unwrap() []error { return []error{ErrBroken, b.cause} }

func (l *Log) brokenError(format string, args ...any) error {
	return &breakage{l.keys, fmt.Errorf(format, args...)}
}

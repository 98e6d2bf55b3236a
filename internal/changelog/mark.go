package changelog

// Mark is a place in a log, behind the last entry that was applied. The zero Mark
// is the beginning of whatever log there is.
type Mark struct {
	LogID string `json:"epoch"` // the log's identity
	Seq   uint64 `json:"seq"`   // of the last entry applied, 0 before the first
	Nonce string `json:"nonce"` // of that entry: after a failover another one may have its number
}

// Mark returns how far the log has been applied. All entries up to there had been
// applied before the call. It is zero until the log has been read to its end once,
// and again after damage.
func (l *Log) Mark() Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark
}

// Resume has Run begin behind a mark rather than at the beginning of the log, for
// someone who has everything up to there. It must be called before Run.
//
// A log that is not the one of the mark, or does not have the mark's entry, is read
// from its beginning after a [Doubt].
func (l *Log) Resume(at Mark) {
	if at.LogID == "" {
		at = Mark{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark = at
	l.recent.incomplete = at.Seq > 0
	l.position.Store(at.Seq)
}

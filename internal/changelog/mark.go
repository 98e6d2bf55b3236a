package changelog

// Mark is a position in a log, behind an entry. The zero Mark is the beginning of any log.
type Mark struct {
	LogID string `json:"epoch"` // the log's identity
	Seq   uint64 `json:"seq"`   // of the entry, 0 before the first
	Nonce string `json:"nonce"` // of the entry: after a failover, another entry may have its number
}

// Mark returns how far the log has been applied. All entries up to it were applied before the call.
// It is zero until the log has been read to its end once, and again after damage.
func (l *Log) Mark() Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark
}

// Resume lets Run begin behind a mark. The caller has all entries up to there. It must be called
// before Run.
//
// If the log's identity differs, or the mark's entry is missing, Run reports a [Doubt] and reads
// the log from its beginning.
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

package changelog

// remembered is how many IDs are kept for a log that loses them: those of a minute at
// 150 new orders a second, or of what a replica that takes over lags behind.
const remembered = 10_000

// recent holds the IDs that were applied or appended last, in a ring. The zero value
// is empty.
type recent struct {
	ids  []string
	next int
	// partly says that there were others before, which came by a mark or a snapshot.
	partly bool
}

func (r *recent) add(id string) {
	if len(r.ids) < remembered {
		r.ids = append(r.ids, id)
		return
	}
	r.ids[r.next] = id
	r.next = (r.next + 1) % remembered
}

// lacking returns the IDs that a log does not have, the oldest first, each once. There
// may be more if it was not for the newest only that the log was to be asked: when the
// oldest that is remembered is lacking, and there were older ones.
func (r *recent) lacking(has func(id string) bool) (ids []string, more bool) {
	seen, older := make(map[string]bool, len(r.ids)), r.partly || len(r.ids) == remembered
	more = older && len(r.ids) == 0
	for i := range r.ids {
		id := r.ids[(r.next+i)%len(r.ids)]
		if !seen[id] && !has(id) {
			ids = append(ids, id)
			more = more || i == 0 && older
		}
		seen[id] = true
	}
	return ids, more
}

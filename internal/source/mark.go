package source

import (
	"slices"
	"time"
)

// Position is a place in the order in which a table is read: right behind a row.
// The zero value is the beginning. It can be kept as JSON. Only the database can
// tell which of two comes first: their texts do not.
type Position struct {
	Of     string `json:"of,omitempty"`     // table and columns
	Cursor string `json:"cursor,omitempty"` // of the row, as the database writes it
	Tie    string `json:"tie,omitempty"`    // what orders rows with the same cursor
}

func (p Position) zero() bool { return p == Position{} }

// Span is what is behind From, up to To; a zero To is the end of the table.
type Span struct {
	From Position `json:"from"`
	To   Position `json:"to"`
}

// Mark says what part of a table need not be read again to catch up. The zero value
// is for a table that was never read. It is a value: copies are independent. In JSON
// it can be kept beside what was read, and is good at any time after.
//
// A row can appear behind one's back: its transaction chose the cursor, say 7, and
// commits when row 8 has long been read. What makes it safe to leave a row out is
// that transactions commit within an overlap after that choice. So the last row of a
// table that is seen at a moment bounds what was chosen by then; from an overlap
// later on all that is up to it, and will ever be, can be read. The mark moves up to
// such a row once everything up to it was read that late.
type Mark struct {
	// Floor is where what has to be read begins.
	Floor Position `json:"floor,omitzero"`
	// Skip was read late enough, though rows in front of it were not: a long read
	// has to read again only what it read in its first overlap.
	Skip *Span `json:"skip,omitempty"`

	// high are the last rows that were seen, in the order of time. The times are of
	// this process, so they are not kept.
	high []sighting
}

// sighting is the last row of the table at a moment.
type sighting struct {
	at  time.Time
	row Position
}

// sightingsIn is how many sightings of an overlap are kept at most, more or less:
// so much of an overlap is read in vain.
const sightingsIn = 8

// Zero reports whether nothing of the table can be left out.
func (m Mark) Zero() bool { return m.Floor.zero() && m.Skip == nil }

// reached returns up to where something was read late enough.
func (m Mark) reached() Position {
	if m.Skip != nil {
		return m.Skip.To
	}
	return m.Floor
}

// pass is one read of what a mark leaves to read, and what may be left out after it.
// It is told what happened and does nothing by itself.
type pass struct {
	mark    Mark
	overlap time.Duration
	ripe    int       // so many of mark.high were seen long enough before the beginning
	seen    time.Time // when the last row was
	last    Position
	spans   []Span
	moved   bool // the floor is in the last span
}

// begin starts a pass. The moment is one before anything is asked.
func (m Mark) begin(now time.Time, overlap time.Duration) *pass {
	p := &pass{mark: m, overlap: overlap}
	p.mark.high = slices.Clone(m.high)
	for i, s := range m.high {
		if now.Sub(s.at) >= overlap {
			p.ripe = i + 1
		}
	}
	return p
}

// saw tells the last row of the table, and a moment at which it had been seen. It
// comes before any batch. What it returns is to be read, in this order.
func (p *pass) saw(now time.Time, last Position) []Span {
	p.seen, p.last = now, last
	if n := len(p.mark.high); n == 0 || now.Sub(p.mark.high[n-1].at) >= p.overlap/sightingsIn {
		// The older one stays when two are close, or none would ever grow old.
		p.mark.high = append(p.mark.high, sighting{now, last})
	}
	p.spans = []Span{{p.mark.Floor, last}}
	if skip := p.mark.Skip; skip != nil {
		p.spans = []Span{{p.mark.Floor, skip.From}, {skip.To, last}}
	}
	return p.spans
}

// read tells that the rows of a batch, in one of the spans, were read by a SELECT
// that began at the moment.
func (p *pass) read(span int, batch Span, began time.Time) {
	switch {
	case span < len(p.spans)-1:
		// In front of rows that had been there for an overlap when the mark was made:
		// what is here was chosen before them.
		p.mark.Floor = batch.To
	case began.Sub(p.seen) < p.overlap:
	case p.mark.Skip != nil:
		p.mark.Skip = &Span{p.mark.Skip.From, batch.To}
	case batch.From == p.mark.Floor:
		p.mark.Floor, p.moved = batch.To, true
	default:
		p.mark.Skip = &Span{batch.From, batch.To}
	}
}

// finished tells that a span was read to its end, which a batch need not have been:
// the last rows may have been deleted.
func (p *pass) finished(span int) {
	skip := p.mark.Skip
	switch {
	case span < len(p.spans)-1:
		p.mark.Floor, p.mark.Skip = skip.To, nil
	case p.moved:
		p.mark.Floor, p.mark.high = p.last, nil
	default:
		if skip != nil {
			p.mark.Skip = &Span{skip.From, p.last}
		}
		if p.ripe > 0 {
			p.mark.Floor = p.mark.high[p.ripe-1].row
			p.mark.high = p.mark.high[p.ripe:]
		}
	}
}

package source

import (
	"encoding/json"
	"slices"
	"time"
)

// Position is a place in the order in which a table is read: right behind a row.
// The zero value is the beginning. It can be kept as JSON. Only the database can
// tell which of two comes first: their texts do not.
type Position struct {
	Identity string `json:"of,omitempty"`     // table and columns
	Cursor   string `json:"cursor,omitempty"` // of the row, as the database writes it
	Tie      string `json:"tie,omitempty"`    // what orders rows with the same cursor
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

	// Seen are the last rows that were seen, in the order of time. Of them JSON has the
	// oldest: one that is read faster than an overlap must have it when it is read next,
	// by whatever process, or the mark would never move.
	Bounds []Bound `json:"seen,omitempty"`
}

// Sighting is the last row of the table at a moment, by the database's clock: whoever
// goes on from a mark may run on another machine.
type Bound struct {
	At  time.Time `json:"at"`
	Row Position  `json:"row"`
}

// sightingsIn is how many sightings of an overlap are kept at most, more or less:
// so much of an overlap is read in vain.
const boundsPerOverlap = 8

// MarshalJSON implements json.Marshaler.
func (m Mark) MarshalJSON() ([]byte, error) {
	type plain Mark
	m.Bounds = m.Bounds[:min(1, len(m.Bounds))]
	return json.Marshal(plain(m))
}

// Zero reports whether nothing of the table can be left out.
func (m Mark) Zero() bool { return m.Floor.zero() && m.Skip == nil }

// Again returns the mark for reading all of the table once more. What is known of its
// end still holds, so the mark is where it was, or further, when that is done.
func (m Mark) Rescan() Mark {
	var again Mark
	if !m.Floor.zero() {
		again.Bounds = append(again.Bounds, Bound{Row: m.Floor})
	}
	again.Bounds = append(again.Bounds, m.Bounds...)
	return again
}

// reached returns up to where something was read late enough.
func (m Mark) readUpTo() Position {
	if m.Skip != nil {
		return m.Skip.To
	}
	return m.Floor
}

// positions returns all that the mark has.
func (m Mark) positions() []Position {
	all := []Position{m.Floor}
	if m.Skip != nil {
		all = append(all, m.Skip.From, m.Skip.To)
	}
	for _, s := range m.Bounds {
		all = append(all, s.Row)
	}
	return all
}

// pass is one read of what a mark leaves to read, and what may be left out after it.
// It is told what happened and does nothing by itself.
type pass struct {
	mark       Mark
	overlap    time.Duration
	aged       int       // so many of mark.Seen were seen long enough before the beginning
	boundSeen  time.Time // when the last row was, by our clock
	last       Position
	spans      []Span
	floorMoved bool // the floor is in the last span
}

// begin starts a pass at a moment of the database's clock, before any batch is asked
// for.
func (m Mark) newPass(now time.Time, overlap time.Duration) *pass {
	p := &pass{mark: m, overlap: overlap}
	// One of a later time is from before the clock was set back: it would stay for ever.
	p.mark.Bounds = slices.DeleteFunc(slices.Clone(m.Bounds), func(s Bound) bool { return s.At.After(now) })
	for i, s := range p.mark.Bounds {
		if now.Sub(s.At) >= overlap {
			p.aged = i + 1
		}
	}
	return p
}

// furthest returns the furthest row that was seen, if there is one. The table must reach
// it still, or pass has to be told that it shrunk: numbers behind the table's end are
// given once more, and what was seen of them says nothing of those.
func (p *pass) lastBound() (row Position, ok bool) {
	if n := len(p.mark.Bounds); n > 0 {
		return p.mark.Bounds[n-1].Row, true
	}
	return row, false
}

// next returns the row that the floor moves to when the pass is finished, if there is
// one.
func (p *pass) nextFloor() (row Position, ok bool) {
	if p.aged == 0 {
		return row, false
	}
	return p.mark.Bounds[p.aged-1].Row, true
}

// shrunk tells that the table does not reach what was seen: its last rows were deleted,
// or it is an older copy, in which new rows come there again.
func (p *pass) dropBounds() { p.mark.Bounds, p.aged = nil, 0 }

// saw tells the last row of the table, and a moment at which it had been seen: by our
// clock, and by the database's. It comes before any batch. What it returns is to be
// read, in this order.
func (p *pass) start(now, there time.Time, last Position) []Span {
	p.boundSeen, p.last = now, last
	if n := len(p.mark.Bounds); n == 0 || there.Sub(p.mark.Bounds[n-1].At) >= p.overlap/boundsPerOverlap {
		// The older one stays when two are close, or none would ever grow old.
		p.mark.Bounds = append(p.mark.Bounds, Bound{there, last})
	}
	p.spans = []Span{{p.mark.Floor, last}}
	if skip := p.mark.Skip; skip != nil {
		p.spans = []Span{{p.mark.Floor, skip.From}, {skip.To, last}}
	}
	return p.spans
}

// read tells that the rows of a batch, in one of the spans, were read by a SELECT
// that began at the moment.
func (p *pass) batchRead(span int, batch Span, began time.Time) {
	switch {
	case span < len(p.spans)-1:
		// In front of rows that had been there for an overlap when the mark was made:
		// what is here was chosen before them.
		p.mark.Floor = batch.To
	case began.Sub(p.boundSeen) < p.overlap:
	case p.mark.Skip != nil:
		p.mark.Skip = &Span{p.mark.Skip.From, batch.To}
	case batch.From == p.mark.Floor:
		p.mark.Floor, p.floorMoved = batch.To, true
	default:
		p.mark.Skip = &Span{batch.From, batch.To}
	}
}

// finished tells that a span was read to its end, which a batch need not have been:
// the last rows may have been deleted.
func (p *pass) spanRead(span int) {
	skip := p.mark.Skip
	switch {
	case span < len(p.spans)-1:
		p.mark.Floor, p.mark.Skip = skip.To, nil
	case p.floorMoved:
		p.mark.Floor, p.mark.Bounds = p.last, nil
	default:
		if skip != nil {
			p.mark.Skip = &Span{skip.From, p.last}
		}
		if row, ok := p.nextFloor(); ok {
			p.mark.Floor, p.mark.Bounds = row, p.mark.Bounds[p.aged:]
		}
	}
}

package source

import (
	"encoding/json"
	"slices"
	"time"
)

// Position is a position in the order of a table, right behind a row. The zero value is the
// beginning. It can be stored as JSON. Only the database can compare two positions: their texts do
// not.
type Position struct {
	Identity string `json:"of,omitempty"`     // the table and columns
	Cursor   string `json:"cursor,omitempty"` // of the row, as the database writes it
	Tie      string `json:"tie,omitempty"`    // orders rows with equal cursors
}

func (p Position) zero() bool { return p == Position{} }

// Span is the rows after From, up to To; a zero To is the end of the table.
type Span struct {
	From Position `json:"from"`
	To   Position `json:"to"`
}

// Mark describes the part of a table that need not be read again to catch up. The zero value is for
// a table that was never read. Copies are independent. It can be stored as JSON beside the IDs that
// were read, and never expires.
//
// A row can appear late: its transaction chose the cursor 7, and commits after row 8 was read. It
// is safe to skip rows because transactions commit within an overlap after choosing a cursor. So
// the last row at some time is an upper bound of all cursors chosen by then. One overlap later, no
// new rows appear below it. The mark moves up to such a bound once all rows below were read that
// late.
type Mark struct {
	// Floor is where the next read begins.
	Floor Position `json:"floor,omitzero"`
	// Skip was read late enough, unlike the rows before it: after a long read, only the rows of its
	// first overlap must be read again.
	Skip *Span `json:"skip,omitempty"`

	// Bounds are the last rows at earlier times, in order. JSON has the oldest. The next read may
	// come sooner than an overlap, and in another process: without that bound, the mark would never
	// move.
	Bounds []Bound `json:"seen,omitempty"`
}

// Bound is the last row of the table at a time of the database's clock. Another machine may
// continue from the mark.
type Bound struct {
	At  time.Time `json:"at"`
	Row Position  `json:"row"`
}

// boundsPerOverlap is about how many bounds of one overlap are kept. That part of an overlap is
// read once more than necessary.
const boundsPerOverlap = 8

// MarshalJSON implements json.Marshaler.
func (m Mark) MarshalJSON() ([]byte, error) {
	type plain Mark
	m.Bounds = m.Bounds[:min(1, len(m.Bounds))]
	return json.Marshal(plain(m))
}

// Zero reports whether all rows must be read.
func (m Mark) Zero() bool { return m.Floor.zero() && m.Skip == nil }

// Rescan returns the mark for reading the whole table once more. Its bounds still hold: after the
// read, the mark is where it was, or further.
func (m Mark) Rescan() Mark {
	var again Mark
	if !m.Floor.zero() {
		again.Bounds = append(again.Bounds, Bound{Row: m.Floor})
	}
	again.Bounds = append(again.Bounds, m.Bounds...)
	return again
}

// readUpTo returns the position up to which rows were read late enough.
func (m Mark) readUpTo() Position {
	if m.Skip != nil {
		return m.Skip.To
	}
	return m.Floor
}

// positions returns all positions in the mark.
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

// pass is one read of the rows that a mark leaves, and computes the mark after it. It does no I/O.
type pass struct {
	mark       Mark
	overlap    time.Duration
	aged       int       // number of mark.Bounds that are old enough at the beginning
	boundSeen  time.Time // when last was read, by the local clock
	last       Position
	spans      []Span
	floorMoved bool // the floor is in the last span
}

// newPass starts a pass at a time of the database's clock, before the first batch.
func (m Mark) newPass(now time.Time, overlap time.Duration) *pass {
	p := &pass{mark: m, overlap: overlap}
	// A bound in the future is from before the clock was set back. It would stay forever.
	p.mark.Bounds = slices.DeleteFunc(slices.Clone(m.Bounds), func(s Bound) bool { return s.At.After(now) })
	for i, s := range p.mark.Bounds {
		if now.Sub(s.At) >= overlap {
			p.aged = i + 1
		}
	}
	return p
}

// lastBound returns the last bound, if there is one. If the table has no row there or behind it,
// call dropBounds: the table reuses numbers behind its end, and the bounds say nothing of those.
func (p *pass) lastBound() (row Position, ok bool) {
	if n := len(p.mark.Bounds); n > 0 {
		return p.mark.Bounds[n-1].Row, true
	}
	return row, false
}

// nextFloor returns the floor after the pass, if it moves.
func (p *pass) nextFloor() (row Position, ok bool) {
	if p.aged == 0 {
		return row, false
	}
	return p.mark.Bounds[p.aged-1].Row, true
}

// dropBounds drops all bounds. The table's last rows were deleted, or the table is an older copy:
// new rows come below the bounds.
func (p *pass) dropBounds() { p.mark.Bounds, p.aged = nil, 0 }

// start sets the last row of the table and when it was read, by the local clock and by the
// database's. Call it before the first batch. It returns the spans to read, in order.
func (p *pass) start(now, serverTime time.Time, last Position) []Span {
	p.boundSeen, p.last = now, last
	if n := len(p.mark.Bounds); n == 0 || serverTime.Sub(p.mark.Bounds[n-1].At) >= p.overlap/boundsPerOverlap {
		// If two are close, the older one stays: else none would grow old.
		p.mark.Bounds = append(p.mark.Bounds, Bound{serverTime, last})
	}
	p.spans = []Span{{p.mark.Floor, last}}
	if skip := p.mark.Skip; skip != nil {
		p.spans = []Span{{p.mark.Floor, skip.From}, {skip.To, last}}
	}
	return p.spans
}

// batchRead records a batch of a span, read by a SELECT that began at a time.
func (p *pass) batchRead(span int, batch Span, began time.Time) {
	switch {
	case span < len(p.spans)-1:
		// These rows lie below Skip.From. They chose their cursors an overlap before the mark was
		// made.
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

// spanRead records that a span was read to its end. Its last batch may end earlier, if the last
// rows were deleted.
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

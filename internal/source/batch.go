package source

import (
	"slices"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
)

// batch is the result of one SELECT, without an allocation for each row.
type batch struct {
	span  Span      // from the position requested, up to the last row
	began time.Time // when the SELECT began
	full  bool      // more rows may follow
	text  []byte    // IDs and cursors of all rows
	ends  []int     // of each ID and each cursor, alternately
	nulls []int     // indexes of rows without an ID
	tie   []byte    // of the last row
}

func (b *batch) reset(from Position) {
	*b = batch{span: Span{From: from, To: from}, text: b.text[:0], ends: b.ends[:0], nulls: b.nulls[:0], tie: b.tie[:0]}
}

func (b *batch) rows() int { return len(b.ends) / 2 }

// add adds a row. It keeps enough of an ID that is too long to recognize it.
func (b *batch) add(id, cursor, tie []byte) {
	if id == nil {
		b.nulls = append(b.nulls, b.rows())
	}
	b.text = append(b.text, id[:min(len(id), orderid.MaxBytes+1)]...)
	b.ends = append(b.ends, len(b.text))
	b.text = append(b.text, cursor...)
	b.ends = append(b.ends, len(b.text))
	b.tie = append(b.tie[:0], tie...)
}

// row returns the bounds of a row's ID and cursor in text.
func (b *batch) row(i int) (start, endID, endCursor int) {
	if i > 0 {
		start = b.ends[2*i-1]
	}
	return start, b.ends[2*i], b.ends[2*i+1]
}

// null reports whether a row has no ID.
func (b *batch) null(i int) bool {
	if len(b.nulls) == 0 {
		return false
	}
	_, found := slices.BinarySearch(b.nulls, i)
	return found
}

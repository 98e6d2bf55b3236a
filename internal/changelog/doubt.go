package changelog

import (
	"strconv"
	"strings"
	"time"
)

// Doubt says that there may be orders which the log does not have and should: all of
// them were created before it is told of.
type Doubt struct {
	Kind   Kind
	Reason string // one line

	// Orders says that it is about orders that were created. Any other is about the
	// sources, too: what these told may not be so any more.
	Orders bool
	// Since is when the first of the orders was created at the earliest, by the creator's
	// clock, to the millisecond; zero: at any time.
	Since time.Time
}

// What stands before the reason of a doubt about orders, where its kind does not say that.
// To a reader that does not know of it, it is a part of the reason, and the doubt is about
// everything.
const (
	ordersMark = "[orders] "
	sinceMark  = "[orders since "
	sinceEnd   = "] "
)

// text is what the log has of it.
func (d Doubt) text() string {
	scope := ""
	switch {
	case !d.Orders || d.Kind.orders():
	case d.Since.IsZero():
		scope = ordersMark
	default:
		scope = sinceMark + strconv.FormatInt(d.Since.UnixMilli(), 10) + sinceEnd
	}
	return string(d.Kind) + ": " + scope + d.Reason
}

// parseDoubt is the reverse of text. A scope that it cannot read is none.
func parseDoubt(text string) Doubt {
	kind, reason, _ := strings.Cut(text, ": ")
	d := Doubt{Kind: Kind(kind), Reason: reason}
	if d.Kind.orders() {
		d.Orders = true
		return d
	}
	if rest, ok := strings.CutPrefix(reason, ordersMark); ok {
		d.Orders, d.Reason = true, rest
		return d
	}
	rest, ok := strings.CutPrefix(reason, sinceMark)
	number, rest, found := strings.Cut(rest, sinceEnd)
	if at, err := strconv.ParseInt(number, 10, 64); ok && found && err == nil && at > 0 {
		d.Orders, d.Since, d.Reason = true, time.UnixMilli(at), rest
	}
	return d
}

// orders reports whether a doubt of the kind is about orders, whoever wrote it.
func (k Kind) orders() bool { return k == Term || k == Crash || k == Start }

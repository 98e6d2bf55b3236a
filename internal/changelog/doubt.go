package changelog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Doubt says that there may be orders which the log does not have and should: all of
// them were created before it is told of, but for those of kind Running.
type Doubt struct {
	Kind   Kind
	Reason string // one line
	// Age is for how long one of kind Running or Term has been in the log at least, by the
	// clock of its server; 0 for the others.
	Age time.Duration

	// Orders says that it is about orders that were created. Any other is about the
	// sources, too: what these told may not be so any more.
	Orders bool
	// Since is when the first of the orders was created at the earliest, by the creator's
	// clock, to the millisecond; zero: at any time.
	Since time.Time
	// Entry is the place of its entry in the log; zero: it has none, the reader has found
	// it.
	Entry Mark
}

// What stands before the reason of a doubt about orders, where its kind does not say that.
// To a reader that does not know of it, it is a part of the reason, and the doubt is about
// everything.
const (
	ordersPrefix = "[orders] "
	sincePrefix  = "[orders since "
	prefixEnd    = "] "
)

// missingMark stands before the reason of a gap, with the number of the last entry that is
// missing.
const missingPrefix = "[up to entry "

// missing returns up to which number a gap tells what is missing, 0 if it does not.
func (d Doubt) missingUpTo() uint64 {
	text, _ := strings.CutPrefix(d.Reason, missingPrefix)
	number, _, _ := strings.Cut(text, prefixEnd)
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// text is what the log has of it.
func (d Doubt) text() string {
	scope := ""
	switch {
	case !d.Orders || d.Kind.isAboutOrders():
	case d.Since.IsZero():
		scope = ordersPrefix
	default:
		scope = sincePrefix + strconv.FormatInt(d.Since.UnixMilli(), 10) + prefixEnd
	}
	return string(d.Kind) + ": " + scope + d.Reason
}

// parseDoubt is the reverse of text. A scope that it cannot read is none.
func parseDoubt(text string) Doubt {
	kind, reason, _ := strings.Cut(text, ": ")
	d := Doubt{Kind: Kind(kind), Reason: reason}
	if d.Kind.isAboutOrders() {
		d.Orders = true
		return d
	}
	if rest, ok := strings.CutPrefix(reason, ordersPrefix); ok {
		d.Orders, d.Reason = true, rest
		return d
	}
	rest, ok := strings.CutPrefix(reason, sincePrefix)
	number, rest, found := strings.Cut(rest, prefixEnd)
	if at, err := strconv.ParseInt(number, 10, 64); ok && found && err == nil && at > 0 {
		d.Orders, d.Since, d.Reason = true, time.UnixMilli(at), rest
	}
	return d
}

// cleared is the kind of an entry that is no doubt: somebody who knows has said that the
// sources have every order that those up to a place are about. To a reader that does not
// know of it, it is a doubt that time clears.
const cleared Kind = "cleared"

// Clear says, to everybody who follows the log, that the sources have every order that the
// doubts up to a place are about: the reading that showed it began when the log had been
// read up to there. It returns as Record does, when it counts for everybody, and an error too if the log has lost that
// place since.
func (l *Log) ClearDoubts(ctx context.Context, upTo Mark) error {
	text := fmt.Sprintf("%s: up to %d of %s", cleared, upTo.Seq, upTo.LogID)
	a, err := l.runAppend(ctx, l.clear, []any{upTo.LogID, upTo.Seq, upTo.Nonce, text}, nil)
	if err != nil {
		return err
	}
	return waitUntil(ctx, a.validFrom)
}

// clears returns up to where the doubts of a log are cleared by an entry of it, 0 if it
// clears none.
func (d Doubt) clearsUpTo(logID string) uint64 {
	text, ok := strings.CutPrefix(d.Reason, "up to ")
	number, of, _ := strings.Cut(text, " of ")
	n, err := strconv.ParseUint(number, 10, 64)
	if d.Kind != cleared || !ok || err != nil || of != logID {
		return 0
	}
	return n
}

// orders reports whether a doubt of the kind is about orders, whoever wrote it.
func (k Kind) isAboutOrders() bool { return k == Failover || k == Crash || k == Start }

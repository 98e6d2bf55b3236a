package changelog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Doubt means that the log may lack orders. All of them were created before it was reported, except
// those of kind Running.
type Doubt struct {
	Kind   Kind
	Reason string // one line
	// Age is the least time that a doubt of kind Running or Failover has been in the log, by the
	// server's clock. It is 0 for other kinds.
	Age time.Duration

	// Orders limits the doubt to created orders. Any other doubt also concerns the sources: what
	// they reported may be outdated.
	Orders bool
	// Since is the earliest creation time of the orders, by the creator's clock, to the
	// millisecond; zero: any time.
	Since time.Time
	// Witness is the ID of an order that exists although a filter of the log lacks it; "": there is
	// none. Such a doubt is about everything.
	Witness string
	// Torn reports that the log does not join what its reader had: entries between them are missing.
	Torn bool
	// Entry is the position of its entry in the log; zero: the reader found it, and it has no
	// entry.
	Entry Mark
}

// The prefixes of the reason of a doubt about orders, for kinds that do not imply it. A reader of
// an earlier release takes the prefix for a part of the reason, and the doubt for one about
// everything.
const (
	ordersPrefix = "[orders] "
	sincePrefix  = "[orders since "
	prefixEnd    = "] "
	// witnessPrefix precedes the quoted witness.
	witnessPrefix = "[order "
)

// missingPrefix precedes the reason of a gap, with the number of the last missing entry.
const missingPrefix = "[up to entry "

// missingUpTo returns the number of the last entry that a gap names as missing, 0 if none.
func (d Doubt) missingUpTo() uint64 {
	text, _ := strings.CutPrefix(d.Reason, missingPrefix)
	number, _, _ := strings.Cut(text, prefixEnd)
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// text returns the doubt as the log stores it.
func (d Doubt) text() string {
	scope := ""
	switch {
	case d.Witness != "":
		scope = witnessPrefix + strconv.Quote(d.Witness) + prefixEnd
	case !d.Orders || d.Kind.isAboutOrders():
	case d.Since.IsZero():
		scope = ordersPrefix
	default:
		scope = sincePrefix + strconv.FormatInt(d.Since.UnixMilli(), 10) + prefixEnd
	}
	return string(d.Kind) + ": " + scope + d.Reason
}

// parseDoubt is the reverse of text. It ignores a scope that it cannot read.
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
	if rest, ok := strings.CutPrefix(reason, witnessPrefix); ok {
		if quoted, err := strconv.QuotedPrefix(rest); err == nil && strings.HasPrefix(rest[len(quoted):], prefixEnd) {
			d.Witness, _ = strconv.Unquote(quoted)
			d.Reason = rest[len(quoted)+len(prefixEnd):]
			return d
		}
	}
	rest, ok := strings.CutPrefix(reason, sincePrefix)
	number, rest, found := strings.Cut(rest, prefixEnd)
	if at, err := strconv.ParseInt(number, 10, 64); ok && found && err == nil && at > 0 {
		d.Orders, d.Since, d.Reason = true, time.UnixMilli(at), rest
	}
	return d
}

// cleared is the kind of an entry that clears doubts: the sources have every order of the doubts up
// to a position. A reader of an earlier release takes it for a doubt that time clears.
const cleared Kind = "cleared"

// ClearDoubts reports to all readers of the log that the sources have every order of the doubts up
// to a mark. The source was read after the log had been read up to there. It returns once the entry
// counts for all readers. Its errors are those of Record, and one if the log has lost the mark
// since.
func (l *Log) ClearDoubts(ctx context.Context, upTo Mark) error {
	text := fmt.Sprintf("%s: up to %d of %s", cleared, upTo.Seq, upTo.LogID)
	a, err := l.runAppend(ctx, l.clear, []any{upTo.LogID, upTo.Seq, upTo.Nonce, text}, nil)
	if err != nil {
		return err
	}
	return waitUntil(ctx, a.validFrom)
}

// clearsUpTo returns the number up to which this entry clears the doubts of a log, 0 if it clears
// none.
func (d Doubt) clearsUpTo(logID string) uint64 {
	text, ok := strings.CutPrefix(d.Reason, "up to ")
	number, of, _ := strings.Cut(text, " of ")
	n, err := strconv.ParseUint(number, 10, 64)
	if d.Kind != cleared || !ok || err != nil || of != logID {
		return 0
	}
	return n
}

// isAboutOrders reports whether a doubt of the kind is always about orders.
func (k Kind) isAboutOrders() bool { return k == Failover || k == Crash || k == Start }

package explain

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
)

// Print writes one line for each known property, its name first.
func (e *Explanation) Print(w io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s%s\n", name, fmt.Sprintf(format, args...))
	}
	e.Summary(line)
	e.PrintFault(line)
	e.Answers.Print(line)
	for _, l := range e.Live {
		line("lock now", "%s", l)
	}
	for _, s := range e.Stored {
		line("answer now", "%s", s)
	}
	for _, s := range e.Conditions {
		line("condition", "%s", s)
	}
	if e.Table != nil {
		line("table now", "%s", e.Table)
	}
	if e.Live != nil && len(e.Live)+len(e.Stored)+len(e.Conditions) == 0 && e.Table == nil {
		line("lock now", "nothing to ask: this request takes no lock")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Summary writes the lines about the decision.
func (e *Explanation) Summary(line func(name, format string, args ...any)) {
	line("request", "%s %s", e.Method, e.Target)
	switch {
	case e.Rule == nil:
		line("rule", "none")
	case e.Mode == nil:
		line("rule", "%s (pass)", *e.Rule)
	default:
		line("rule", "%s (%s, %s)", *e.Rule, strings.Join(e.Actions, " and "), *e.Mode)
	}
	if e.Share != nil {
		line("enforced", "%s: %s", map[bool]string{true: "yes", false: "no"}[*e.Enforced], *e.Share)
	}
	for _, f := range e.Found {
		line("found", "%s in %s", f.Raw, f.Place)
	}
	if e.ID != nil {
		line("order ID", "%s", strings.Join(e.IDs, ", "))
	}
	if e.OnceKey != nil {
		line("once key", "%s", *e.OnceKey)
	}
	for _, key := range e.LockKeys {
		line("lock key", "%s", key)
	}
	if e.LimitKey != nil {
		line("limit key", "%s", *e.LimitKey)
	}
	for _, key := range e.Forgets {
		line("forgets", "%s", key)
	}
	if e.Verdict != nil {
		line("verdict", "%s", *e.Verdict)
		line("status", "%s", e.Possible[0])
	} else {
		line("verdict", "decided at run time, one of:")
		for _, p := range e.Possible {
			line(p.Verdict, "%s, %s", p, *p.When)
		}
	}
	if e.Reason == nil {
		line("reason", "%s", e.Because)
	} else {
		line("reason", "%s: %s", *e.Reason, e.Because)
	}
	for _, n := range e.Near {
		line("near", "%s, but %s", n.Rule, n.Text)
	}
}

// PrintFault writes the lines about the faulty part.
func (e *Explanation) PrintFault(line func(name, format string, args ...any)) {
	if e.Part == nil {
		return
	}
	if e.PartText != nil {
		line(*e.Part, "%s", *e.PartText)
	}
	indent := strings.Repeat(" ", e.Column)
	switch {
	case e.Byte != nil:
		line("byte", "%s^ %s, offset %d", indent, *e.Byte, *e.Offset)
	case e.Piece != nil:
		line("piece", "%s^ %s, offset %d", indent, *e.Piece, *e.Offset)
	case e.Offset != nil:
		line("byte", "%s^ the end, offset %d", indent, *e.Offset)
	default:
		line("byte", "no single one")
	}
}

// String describes the status that the client gets.
func (p possible) String() string {
	ours := ""
	switch {
	case p.GRPC != nil:
		ours = fmt.Sprintf("gRPC %d %s", *p.GRPC, codes.Code(*p.GRPC))
	case p.Enforced != nil:
		ours = strconv.Itoa(*p.Enforced)
	}
	switch {
	case p.Status != nil:
		return ours
	case p.Enforced != nil:
		return fmt.Sprintf("the backend's (%s if it were enforced)", ours)
	}
	return "the backend's"
}

// Marked is the part of a request with its fault.
type Marked struct {
	Part                 string
	Before, Fault, After string // Fault is empty at the end of the part
}

// Marked returns the faulty part of the request; nil: there is none, or the fault is no single place.
func (e *Explanation) Marked() *Marked {
	if e.Part == nil || e.PartText == nil || e.Offset == nil {
		return nil
	}
	text, size := *e.PartText, 0
	switch {
	case e.Piece != nil:
		size = len(*e.Piece)
	case e.Byte != nil && strings.Contains(*e.Byte, "'"):
		size = 1
	case e.Byte != nil:
		size = len(`\x00`)
	}
	from := min(e.Column, len(text))
	to := min(from+size, len(text))
	return &Marked{*e.Part, text[:from], text[from:to], text[to:]}
}

package gate

import (
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
)

// MetadataNamespace is that of the dynamic metadata which ext_proc and the module set. Envoy puts
// that of ext_authz under the name of its filter.
const MetadataNamespace = "ordergate"

// Metadata describes a decision to Envoy, for its access log, its traces and other filters. Every
// value is visible ASCII without quotes, backslashes and markup, so that none needs escaping.
type Metadata struct {
	Rule, Action, Verdict string
	Reason                string // "": none
	Order                 string // "": unknown
	Fence, Outcome        string // of a bracket; "": there is none yet
	Wait                  time.Duration
}

// MetadataField is a field of [Metadata].
type MetadataField struct {
	Name   string
	Text   string // "": Number counts
	Number float64
}

// Fields yields the fields that are set.
func (m *Metadata) Fields() iter.Seq[MetadataField] {
	return func(yield func(MetadataField) bool) {
		for _, f := range [...]MetadataField{
			{Name: "rule", Text: m.Rule}, {Name: "action", Text: m.Action}, {Name: "verdict", Text: m.Verdict}, {Name: "reason", Text: m.Reason},
			{Name: "order", Text: m.Order}, {Name: "fence", Text: m.Fence}, {Name: "outcome", Text: m.Outcome},
		} {
			if f.Text != "" && !yield(f) {
				return
			}
		}
		if ms := m.WaitMS(); ms > 0 {
			yield(MetadataField{Name: "wait_ms", Number: ms})
		}
	}
}

// WaitMS returns the wait in ms, with one decimal.
func (m *Metadata) WaitMS() float64 { return milliseconds(m.Wait) }

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(100*time.Microsecond)) / 10
}

// Metadata returns that of a decision. It returns false if nothing was decided.
func (g *Gate) Metadata(d *Decision) (m Metadata, ok bool) {
	if d.Rule < 0 || d.Verdict == VerdictNone {
		return Metadata{}, false
	}
	return Metadata{
		Rule: g.policies[d.Rule].Rule.Name, Action: d.Action.String(), Verdict: d.Verdict.String(), Reason: d.reasonName(),
		Order: plain(d.ID), Wait: d.Waited,
	}, true
}

// Metadata is [Gate.Metadata] for a call. Its outcome is there once it is final.
func (c *Call) Metadata() (m Metadata, ok bool) {
	d := &c.Decision
	if d.Verdict == VerdictNone {
		d = &c.screened
	}
	id := c.learnedID.Load()
	if m, ok = c.gate.Metadata(d); !ok && id == nil {
		return m, false
	}
	if m.Rule, m.Action, m.Order = c.Rule(), d.Action.String(), c.orders(); id != nil {
		m.Action, m.Order = ActionCreate.String(), plain(*id)
	}
	if c.lease != nil {
		m.Fence = FenceText(c.lease)
	}
	if c.NeedsLock && c.bracket.isFinal() && (c.lease != nil || !c.policy.Observe) {
		m.Outcome = c.bracket.outcome.String()
	}
	return m, true
}

// HasNews reports, once, that the outcome of the call has become final, or that its new order has been
// learned: Metadata has it now.
func (c *Call) HasNews() bool {
	news := !c.toldOutcome && c.lease != nil && c.bracket.isFinal()
	c.toldOutcome = c.toldOutcome || news
	if c.learnedID.Load() != nil && !c.toldOrder {
		news, c.toldOrder = true, true
	}
	return news
}

// isFinal reports whether no later event of the stream changes the outcome.
func (b *bracket) isFinal() bool {
	return b.state == done || b.state == closed || b.state == answered && b.outcome != OutcomeKnown
}

// orders names the call's orders; "": they are unknown.
func (c *Call) orders() string {
	switch n := len(c.lockRequest.IDs); {
	case n > 1:
		return plain(c.lockRequest.IDs[0]) + " and " + strconv.Itoa(n-1) + " more"
	case c.Decision.ID != "":
		return plain(c.Decision.ID)
	case c.screened.ID != "":
		return plain(c.screened.ID)
	}
	return plain(c.namedID)
}

// maxPlain bounds the result of plain, in bytes.
const maxPlain = 256

// plain returns a text of a client in visible ASCII, with a percent sign and two hexadecimal digits in
// place of every byte that could mean something to a log, a terminal or a page. It is a copy unless the
// text is as it may be.
func plain(text string) string {
	i := 0
	for i < len(text) && isPlain[text[i]] {
		i++
	}
	if i == len(text) && i <= maxPlain {
		return text
	}
	b := make([]byte, 0, maxPlain+len("..."))
	for i := range len(text) {
		if len(b) > maxPlain-len("%00") {
			return string(b) + "..."
		}
		if c := text[i]; isPlain[c] {
			b = append(b, c)
		} else {
			const hex = "0123456789ABCDEF"
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

var isPlain = func() (is [256]bool) {
	for c := '!'; c <= '~'; c++ {
		is[c] = !strings.ContainsRune(`"'%&<>\`+"`", c)
	}
	return is
}()

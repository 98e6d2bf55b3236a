package gate

import (
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
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

// Field numbers of google.protobuf.Struct and Value.
const (
	fieldFields          = 1 // Struct: map entries {1: key, 2: value}
	fieldKey, fieldValue = 1, 2
	fieldNumber          = 2 // Value
	fieldText            = 3
	fieldStruct          = 5
)

// Size returns the size of what AppendStruct appends, in bytes.
func (m *Metadata) Size() (size int) {
	for f := range m.Fields() {
		size += sizeOfBytes(sizeOfEntry(&f))
	}
	return size
}

// AppendStruct appends the fields as an encoded google.protobuf.Struct. It does not allocate if b has
// room: every check that a rule decides has metadata.
func (m *Metadata) AppendStruct(b []byte) []byte {
	for f := range m.Fields() {
		b = appendEntry(b, f.Name, sizeOfValue(&f))
		if f.Text != "" {
			b = protowire.AppendTag(b, fieldText, protowire.BytesType)
			b = protowire.AppendString(b, f.Text)
		} else {
			b = protowire.AppendTag(b, fieldNumber, protowire.Fixed64Type)
			b = protowire.AppendFixed64(b, math.Float64bits(f.Number))
		}
	}
	return b
}

// AppendNamespace is AppendStruct for a Struct whose one field, named MetadataNamespace, is that one.
func (m *Metadata) AppendNamespace(b []byte) []byte {
	size := m.Size()
	b = appendEntry(b, MetadataNamespace, sizeOfBytes(size))
	b = protowire.AppendTag(b, fieldStruct, protowire.BytesType)
	return m.AppendStruct(protowire.AppendVarint(b, uint64(size)))
}

// appendEntry appends the begin of an entry, whose value has the given size and follows.
func appendEntry(b []byte, name string, size int) []byte {
	b = protowire.AppendTag(b, fieldFields, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeOfBytes(len(name))+sizeOfBytes(size)))
	b = protowire.AppendTag(b, fieldKey, protowire.BytesType)
	b = protowire.AppendString(b, name)
	b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

// sizeOfBytes is the size of a field of n bytes with a number below 16.
func sizeOfBytes(n int) int { return 1 + protowire.SizeBytes(n) }

func sizeOfEntry(f *MetadataField) int { return sizeOfBytes(len(f.Name)) + sizeOfBytes(sizeOfValue(f)) }

func sizeOfValue(f *MetadataField) int {
	if f.Text == "" {
		return 1 + protowire.SizeFixed64()
	}
	return sizeOfBytes(len(f.Text))
}

// WaitMS returns the wait in ms, with one decimal.
func (m *Metadata) WaitMS() float64 { return milliseconds(m.Wait) }

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(100*time.Microsecond)) / 10
}

// Undescribed has the gate describe no decision, before it is used.
func (g *Gate) Undescribed() { g.describes = false }

// Metadata returns that of a decision. It returns false if nothing was decided.
func (g *Gate) Metadata(d *Decision) (m Metadata, ok bool) {
	if d.Rule < 0 || d.Verdict == VerdictNone || !g.describes {
		return Metadata{}, false
	}
	return Metadata{
		Rule: g.policies[d.Rule].Rule.Name, Action: d.Action.String(), Verdict: d.Verdict.String(), Reason: d.reasonName(),
		Order: plain(d.ID), Wait: d.Waited,
	}, true
}

// Metadata is [Gate.Metadata] for a call. The outcome is there if it is final already: see News.
func (c *Call) Metadata() (m Metadata, ok bool) {
	d := &c.Decision
	if d.Verdict == VerdictNone {
		d = &c.screened
	}
	if m, ok = c.gate.Metadata(d); !ok {
		return m, false
	}
	m.Order = c.orders()
	if c.lease != nil {
		m.Fence = cut(FenceText(c.lease))
	}
	if c.NeedsLock && c.bracket.isFinal() && (c.lease != nil || !c.policy.Observe) {
		m.Outcome = c.bracket.outcome.String()
	}
	return m, true
}

// News returns, once, the metadata of what has become final since the call was forwarded: its outcome,
// or its new order.
func (c *Call) News() (m Metadata, ok bool) {
	if !c.gate.describes {
		return m, false
	}
	if !c.toldOutcome && c.lease != nil && c.bracket.isFinal() {
		c.toldOutcome, ok = true, true
		m.Outcome = c.bracket.outcome.String()
	}
	if id := c.learnedID.Load(); id != nil && !c.toldOrder {
		c.toldOrder, ok = true, true
		m.Rule, m.Action, m.Order = c.Rule(), ActionCreate.String(), plain(*id)
	}
	return m, ok
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

// cut cuts a text that is too long for metadata: the fences of many orders.
func cut(text string) string {
	if len(text) > maxPlain {
		return text[:maxPlain] + "..."
	}
	return text
}

var isPlain = func() (is [256]bool) {
	for c := '!'; c <= '~'; c++ {
		is[c] = !strings.ContainsRune(`"'%&<>\`+"`", c)
	}
	return is
}()

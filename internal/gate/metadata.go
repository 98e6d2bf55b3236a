package gate

import (
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ordergate/ordergate/internal/order"
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

	encoded [3][]byte // entries of Rule and Action, of Verdict, and of Reason; nil: there is none
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
	for _, entries := range m.encoded {
		size += len(entries)
	}
	size += sizeOfEntry("order", m.Order) + sizeOfEntry("fence", m.Fence) + sizeOfEntry("outcome", m.Outcome)
	if m.WaitMS() > 0 {
		size += sizeOfBytes(sizeOfBytes(len(waitMS)) + sizeOfBytes(sizeOfNumber))
	}
	return size
}

// AppendStruct appends the fields as an encoded google.protobuf.Struct. It does not allocate if b has
// room: every check that a rule decides has metadata.
func (m *Metadata) AppendStruct(b []byte) []byte {
	for _, entries := range m.encoded {
		b = append(b, entries...)
	}
	b = appendText(appendText(appendText(b, "order", m.Order), "fence", m.Fence), "outcome", m.Outcome)
	if ms := m.WaitMS(); ms > 0 {
		b = protowire.AppendTag(appendEntry(b, waitMS, sizeOfNumber), fieldNumber, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(ms))
	}
	return b
}

// NamespaceSize returns the size of what AppendNamespace appends, in bytes.
func (m *Metadata) NamespaceSize() int {
	return sizeOfBytes(sizeOfBytes(len(MetadataNamespace)) + sizeOfBytes(sizeOfBytes(m.Size())))
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

// appendText appends an entry with a text, unless that is empty.
func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	b = protowire.AppendTag(appendEntry(b, name, sizeOfBytes(len(text))), fieldText, protowire.BytesType)
	return protowire.AppendString(b, text)
}

// waitMS is the name of Wait, and sizeOfNumber the size of its value.
const (
	waitMS       = "wait_ms"
	sizeOfNumber = 1 + 8
)

// sizeOfBytes is the size of a field of n bytes with a number below 16.
func sizeOfBytes(n int) int { return 1 + protowire.SizeBytes(n) }

// sizeOfEntry is the size of what appendText appends.
func sizeOfEntry(name, text string) int {
	if text == "" {
		return 0
	}
	return sizeOfBytes(sizeOfBytes(len(name)) + sizeOfBytes(sizeOfBytes(len(text))))
}

// What is the same in the metadata of many requests is encoded once.
var (
	encodedVerdicts = func() (all [Verdicts][]byte) {
		for v := range Verdict(Verdicts) {
			all[v] = appendText(nil, "verdict", v.String())
		}
		return all
	}()
	encodedReasons = func() (all [order.Reasons][]byte) {
		for r := order.NoReason + 1; int(r) < order.Reasons; r++ {
			all[r] = appendText(nil, "reason", r.Name())
		}
		return all
	}()
)

// encodeActions encodes a rule with each of its actions.
func encodeActions(rule string) (all [Actions][]byte) {
	for a := range Action(Actions) {
		all[a] = appendText(appendText(nil, "rule", rule), "action", a.String())
	}
	return all
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
		encoded: [...][]byte{g.encodedActions[d.Rule][d.Action], encodedVerdicts[d.Verdict], encodedReasons[d.Reason]},
	}, true
}

// metadata is [Gate.Metadata] for a call; nil: nothing was decided. The outcome is there if it is final
// already: see news.
func (c *Call) metadata() *Metadata {
	d := &c.Decision
	if d.Verdict == VerdictNone && c.screened != nil {
		d = c.screened
	}
	decided, ok := c.gate.Metadata(d)
	if !ok {
		return nil
	}
	m := &decided
	m.Order = c.orders()
	if c.lease != nil {
		m.Fence = plain(FenceText(c.lease)) // of many orders it is long
	}
	if c.NeedsLock && c.bracket.isFinal() && (c.lease != nil || !c.policy.Observe) {
		m.Outcome = c.bracket.outcome.String()
	}
	return m
}

// news returns, once, the metadata of what has become final since the call was forwarded: its outcome,
// or its new order; nil: nothing has.
func (c *Call) news() *Metadata {
	outcome := !c.toldOutcome && c.lease != nil && c.bracket.isFinal()
	order := !c.toldOrder && c.learnedID != ""
	if !c.gate.describes || !outcome && !order {
		return nil
	}
	m := new(Metadata)
	if outcome {
		c.toldOutcome, m.Outcome = true, c.bracket.outcome.String()
	}
	if order {
		c.toldOrder = true
		m.Rule, m.Action, m.Order = c.Rule(), ActionCreate.String(), plain(c.learnedID)
		m.encoded[0] = c.gate.encodedActions[c.Decision.Rule][ActionCreate]
	}
	return m
}

// isFinal reports whether no later event of the stream changes the outcome.
func (b *bracket) isFinal() bool {
	return b.state == complete || b.state == closed || b.state == answered && b.outcome != OutcomeKnown
}

// orders names the call's orders; "": they are unknown.
func (c *Call) orders() string {
	switch n := len(c.lockRequest.IDs); {
	case n > 1:
		return plain(c.lockRequest.IDs[0]) + " and " + strconv.Itoa(n-1) + " more"
	case c.Decision.ID == "" && c.screened != nil:
		return plain(c.screened.ID)
	}
	return plain(c.Decision.ID)
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

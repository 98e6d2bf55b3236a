package explain

import (
	"bytes"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// find returns the IDs in the locations that the rule reads, then the parts, the ID of its limit last. It is
// less strict than the gate: it only serves to display IDs, and the gate judges them.
func (q *Explainer) find(rule *order.Rule) (all []found) {
	for i := range rule.IDs {
		all = append(all, q.findID(rule, &rule.IDs[i])...)
	}
	for i := range rule.Parts {
		p := &rule.Parts[i]
		for _, f := range q.findID(rule, &p.ID) {
			f.Place += ", for the part " + p.Name
			all = append(all, f)
		}
	}
	if rule.Limit == nil {
		return all
	}
	for _, f := range q.findID(rule, rule.Limit) {
		f.Place += ", for the limit"
		all = append(all, f)
	}
	return all
}

// role is what an ID in a request is for.
type role int8

const (
	roleOrder role = iota
	rolePart
	roleLimit
)

// roleOf returns the role of an ID that find found.
func roleOf(rule *order.Rule, id *order.ID) role {
	if id == rule.Limit {
		return roleLimit
	}
	for i := range rule.Parts {
		if id == &rule.Parts[i].ID {
			return rolePart
		}
	}
	return roleOrder
}

func (q *Explainer) findID(rule *order.Rule, id *order.ID) (all []found) {
	path, query, _ := strings.Cut(q.Target, "?")
	add := func(place, part, text, raw string, offset int) {
		all = append(all, found{Place: place, Raw: admin.Visible(raw), id: id, part: part, text: text, raw: raw, offset: offset})
	}
	inPairs := func(place, part, text, separator string) {
		for offset, pair := range pairs(text, separator) {
			if name, value, _ := strings.Cut(pair, "="); name == id.Name {
				add(place, part, text, value, offset+min(len(name)+1, len(pair)))
			}
		}
	}
	switch id.In {
	case order.InPath:
		names, texts := strings.Split(rule.Path, "/"), strings.Split(path, "/")
		if n := slices.Index(names, "{"+id.Name+"}"); len(names) == len(texts) {
			add("path segment {"+id.Name+"}", "path", path, texts[n], len(strings.Join(texts[:n], "/"))+1)
		}
	case order.InQuery:
		inPairs("query parameter "+id.Name, "query", query, "&")
	case order.InForm:
		inPairs("form field "+id.Name, "body", string(q.Body), "&")
	case order.InHeader, order.InCookie:
		for _, h := range q.Headers {
			switch {
			case id.In == order.InHeader && h[0] == id.Name:
				add("header "+id.Name, "header", h[1], h[1], 0)
			case id.In == order.InCookie && h[0] == "cookie":
				inPairs("cookie "+id.Name, "cookie", h[1], ";")
			}
		}
	case order.InJSON:
		for offset, raw := range jsonIDs(q.Body, id) {
			add("JSON member "+strings.Join(id.Members, "."), "body", string(q.Body), raw, offset)
		}
	}
	return all
}

// pairs iterates over the pairs name=value of text and their offsets in bytes.
func pairs(text, separator string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		offset := 0
		for pair := range strings.SplitSeq(text, separator) {
			inner := strings.TrimLeft(pair, " \t")
			if inner != "" && !yield(offset+len(pair)-len(inner), strings.TrimRight(inner, " \t")) {
				return
			}
			offset += len(pair) + len(separator)
		}
	}
}

// jsonIDs iterates over the value, or the elements of the list, that the gate reads an ID
// from. It yields their offsets in bytes, and their text without quotes.
func jsonIDs(body []byte, id *order.ID) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		d := jsontext.NewDecoder(bytes.NewReader(body))
		for _, name := range id.Members {
			if !enterMember(d, name) {
				return
			}
		}
		if id.List && d.PeekKind() == '[' {
			_, _ = d.ReadToken()
		}
		for d.PeekKind() != ']' {
			v, err := d.ReadValue()
			if err != nil {
				return
			}
			offset := int(d.InputOffset()) - len(v)
			if v.Kind() == '"' {
				v, offset = v[1:len(v)-1], offset+1
			}
			if id.Separator != "" {
				for text := range strings.SplitSeq(string(v), id.Separator) {
					if !yield(offset, text) {
						return
					}
					offset += len(text) + len(id.Separator)
				}
				return
			}
			if !yield(offset, string(v)) || !id.List {
				return
			}
		}
	}
}

// enterMember reads an object up to the value of a member. It returns false if the decoder
// is not at an object, or the object lacks the member.
func enterMember(d *jsontext.Decoder, name string) bool {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return false
	}
	for {
		t, err := d.ReadToken()
		if err != nil || t.Kind() != '"' {
			return false
		}
		if t.String() == name {
			return true
		}
		if d.SkipValue() != nil {
			return false
		}
	}
}

// locateFault finds the part of the request that made the gate refuse it. The reason is that of
// the match, unless the match has none.
func (q *Explainer) locateFault(e *Explanation, p *gate.Policy, reason order.Reason, m order.Match) {
	path, query, _ := strings.Cut(q.Target, "?")
	part := reason.Part()
	text := map[string]string{"path": path, "query": query, "body": string(q.Body), "method": q.Method}[part]
	switch reason {
	case order.MissingID:
		e.Because += lookedFor(q.rules[m.Rule].IDs...)
	case order.OtherMethod:
		e.Because += ": a rule of its own, or match.other_methods: pass, lets it through"
	case order.MissingLimit:
		e.Because += lookedFor(*q.rules[m.Rule].Limit)
	case order.MissingPart:
		q.locateMissingPart(e, &q.rules[m.Rule])
	case order.MalformedID, order.MalformedPart, order.MalformedLimit:
		q.locateMalformed(e, m)
	case order.RepeatedID, order.RepeatedInList, order.RepeatedPart, order.RepeatedLimit:
		e.locateRepeated()
	case order.DifferentIDs:
	case order.FormBody, order.ContentType:
		q.locateHeader(e, "content-type")
	case order.ContentEncoding:
		q.locateHeader(e, "content-encoding")
	case order.MissingHeader:
		q.locateMissingHeaders(e, p.Settle.Require.Headers)
	case order.MissingKey:
		q.locateMissingHeaders(e, headersOf(p.Once.Key))
	case order.MalformedHeader, order.RepeatedHeader:
		q.locateByPrefix(e, part, func(r order.Request) bool { return q.gate.Open(r).Decision.Reason == reason })
	case order.MalformedKey, order.RepeatedKey:
		e.Because += ": it is made of " + strings.Join(append(headersOf(p.Once.Key), p.Once.Key.Scope...), ", ")
	default:
		if m.Offset >= 0 {
			e.setFault(part, text, m.Offset, "")
			return
		}
		if part == "query" && q.locateByRemoval(e, query, m) {
			return
		}
		q.locateByPrefix(e, part, func(r order.Request) bool {
			got := q.table.Match(r)
			return got.Rule == m.Rule && got.Reason == m.Reason
		})
	}
	if e.Part == nil {
		e.setFault(part, text, -1, "")
	}
}

// locateHeader marks a header that describes the body as the fault, or reports that it is
// missing.
func (q *Explainer) locateHeader(e *Explanation, name string) {
	for _, h := range q.Headers {
		if h[0] == name {
			e.setFault("header", h[0]+": "+h[1], 0, h[0]+": "+h[1])
			return
		}
	}
	e.Because += ": there is no " + name + " header"
}

func lookedFor(ids ...order.ID) string {
	var places []string
	for _, id := range ids {
		places = append(places, [...]string{"path", "query", "header", "cookie", "form", "JSON"}[id.In]+" "+id.Name+strings.Join(id.Members, "."))
	}
	return ": looked for in " + strings.Join(places, ", ")
}

// locateMissingPart names the first part that the request lacks.
func (q *Explainer) locateMissingPart(e *Explanation, rule *order.Rule) {
	for i := range rule.Parts {
		p := &rule.Parts[i]
		if !slices.ContainsFunc(e.Found, func(f found) bool { return f.id == &p.ID }) {
			e.Because += ": " + p.Name + lookedFor(p.ID)
			return
		}
	}
}

// locateMalformed finds the ID of the order, the part or the limit that its format refuses, and
// the faulty byte in it.
func (q *Explainer) locateMalformed(e *Explanation, m order.Match) {
	var these []found
	for _, f := range e.Found {
		if roleOf(&q.rules[m.Rule], f.id) == roles[m.Reason] {
			these = append(these, f)
		}
	}
	for _, f := range these {
		if _, ok := f.id.Format.Canonical(f.raw); ok {
			continue
		}
		if i := firstInvalidByte(f.id.Format, f.raw); i >= 0 {
			e.setFault(f.part, f.text, f.offset+i, "")
		} else {
			e.setFault(f.part, f.text, f.offset, f.raw)
		}
		return
	}
	// All IDs found are well-formed. So one has the wrong JSON type, or exceeds the length of
	// a list. The gate stopped right after that ID.
	for _, f := range these {
		if end := f.offset + len(f.raw); f.id.In == order.InJSON && (end == m.Offset || end+1 == m.Offset) {
			e.setFault(f.part, f.text, f.offset, f.raw)
			return
		}
	}
	e.setFault("body", string(q.Body), m.Offset, "")
}

// roles has the role of the ID that a reason is about.
var roles = map[order.Reason]role{order.MalformedID: roleOrder, order.MalformedPart: rolePart, order.MalformedLimit: roleLimit}

// firstInvalidByte returns the offset of the first byte that the format does not allow at its
// position. It returns -1 if the ID is only wrong as a whole. It tests one byte at a time, in
// an ID whose other bytes are valid.
func firstInvalidByte(f order.Format, text string) int {
	const nil36 = "00000000-0000-0000-0000-000000000000"
	before, after, longest := "1", "", f.Max
	probe := order.Format{Kind: order.Digits, Min: 1, Max: 2}
	switch f.Kind {
	case order.UUID:
		probe, longest = f, len(nil36)
	case order.Pattern:
		probe.Kind, probe.Pattern = order.Pattern, anyText
	}
	for i := range len(text) {
		if f.Kind == order.UUID && i < longest {
			before, after = nil36[:i], nil36[i+1:]
		}
		if _, ok := probe.Canonical(before + text[i:i+1] + after); !ok || i >= longest {
			return i
		}
	}
	if f.Kind != order.UUID && f.Kind != order.Pattern && len(text) > 1 && text[0] == '0' {
		return 0
	}
	return -1
}

var anyText = regexp.MustCompile(`(?s)\A.*\z`)

// locateRepeated marks the ID that repeats an earlier ID as the fault.
func (e *Explanation) locateRepeated() {
	for i, f := range e.Found {
		for _, earlier := range e.Found[:i] {
			a, _ := earlier.id.Format.Canonical(earlier.raw)
			if b, _ := f.id.Format.Canonical(f.raw); earlier.id == f.id && (!f.id.List || a == b) {
				e.setFault(f.part, f.text, f.offset, f.raw)
				return
			}
		}
	}
}

// shownBefore and shownAfter bound the text shown around the faulty byte, in bytes.
const shownBefore, shownAfter = 30, 45

// setFault sets the faulty part of the request. The fault is the byte at offset, or piece,
// which begins there. Offset -1 means that the fault is the whole part.
func (e *Explanation) setFault(part, text string, offset int, piece string) {
	e.Part = &part
	from, to := 0, min(len(text), max(offset, 0)+shownAfter)
	before, after := "", ""
	if offset > shownBefore {
		from, before = min(offset-shownBefore, len(text)), "..."
	}
	if to < len(text) {
		after = "..."
	}
	if text != "" {
		e.PartText = new(before + admin.Visible(text[from:to]) + after)
	}
	if offset < 0 {
		return
	}
	e.Offset = &offset
	e.Column = len(before + admin.Visible(text[from:min(offset, len(text))]))
	switch {
	case piece != "":
		e.Piece = new(admin.Visible(piece[:min(len(piece), 2*shownAfter)]))
	case offset < len(text):
		c := text[offset]
		e.Byte = new(fmt.Sprintf("0x%02x", c))
		if ' ' <= c && c < 0x7f {
			*e.Byte += fmt.Sprintf(" '%c'", c)
		}
	}
}

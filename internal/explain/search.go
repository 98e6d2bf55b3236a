package explain

import (
	"slices"
	"sort"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// maxRemoved bounds the parameters that locateByRemoval leaves out, one after the other.
const maxRemoved = 100

// locateByRemoval finds the one parameter of the query without which the rule accepts the
// request. A parameter before those that the rule matches by is refused only with these.
func (q *Explainer) locateByRemoval(e *Explanation, query string, m order.Match) bool {
	path, _, _ := strings.Cut(q.Target, "?")
	all := strings.Split(query, "&")
	r, offset := q.Request, 0
	for i, pair := range all[:min(len(all), maxRemoved)] {
		r.Target = path + "?" + strings.Join(slices.Delete(slices.Clone(all), i, i+1), "&")
		if got := q.table.Match(r); got.Rule == m.Rule && got.Reason == order.NoReason {
			e.setFault("query", query, offset, pair)
			return true
		}
		offset += len(pair) + 1
	}
	return false
}

// locateByPrefix finds the header, parameter or field that caused the reason. The gate reads
// them in order and stops at the first fault. So a binary search finds the shortest prefix
// that the gate refuses for the same reason: its last element is the fault. Part is that of the
// reason; same reports whether the gate refuses a request for it.
func (q *Explainer) locateByPrefix(e *Explanation, part string, same func(order.Request) bool) {
	// The content-* headers stay. Without them the gate would not read the body, and the
	// search would blame them for a fault in it.
	var stay, others order.HeaderList
	for _, h := range q.Headers {
		if strings.HasPrefix(h[0], "content-") {
			stay = append(stay, h)
		} else {
			others = append(others, h)
		}
	}
	r := q.Request
	if n := sort.Search(len(others), func(n int) bool {
		r.Header = slices.Concat(stay, others[:n])
		return same(r)
	}); n > 0 {
		h := others[n-1]
		text := h[0] + ": " + h[1]
		e.setFault("header", text, 0, text)
		return
	}
	path, query, _ := strings.Cut(q.Target, "?")
	r = q.Request
	if q.locatePair(e, "query", query, func(text string) bool { r.Target = path + "?" + text; return same(r) }) {
		return
	}
	if part == "body" {
		return // the fault is the whole body; a fault in a single field has another part
	}
	r = q.Request
	q.locatePair(e, "body", string(q.Body), func(text string) bool { r.Body = []byte(text); return same(r) })
}

func (q *Explainer) locatePair(e *Explanation, part, text string, refused func(string) bool) bool {
	ends, starts := []int{0}, []int{0}
	for offset, pair := range pairs(text, "&") {
		starts, ends = append(starts, offset), append(ends, offset+len(pair))
	}
	n := sort.Search(len(ends)-1, func(n int) bool { return refused(text[:ends[n]]) })
	if n > 0 {
		e.setFault(part, text, starts[n], text[starts[n]:ends[n]])
	}
	return n > 0
}

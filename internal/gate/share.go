package gate

import (
	"math/bits"
	"slices"
	"strings"
	"unsafe"

	"github.com/dchest/siphash"

	"github.com/ordergate/ordergate/internal/order"
)

// Share is the part of a rule's requests that the gate enforces. It observes the others.
type Share struct {
	// Orders is how many of 10,000 orders the gate enforces, 1 to 9,999. 0: Header decides.
	Orders int
	// Header is a request header, in lower case. The gate enforces a request that has it
	// exactly once, with Value. An empty Value stands for any.
	Header, Value string
	// Others is the policy for the other requests: the same one in observe mode.
	Others *Policy
}

// AllOrders is the number of parts that a [Share] divides orders into.
const AllOrders = 10_000

// policy returns the policy for a request. A policy without a share costs one comparison.
func (g *Gate) policy(m *order.Match, req *order.Request) *Policy {
	p := &g.policies[m.Rule]
	if p.Share == nil {
		return p
	}
	return g.shared(p, m, req)
}

// shared stays out of line, so that policy is inlined.
//
//go:noinline
func (g *Gate) shared(p *Policy, m *order.Match, req *order.Request) *Policy {
	if p.Share.enforces(m, req.Header, p.Locks()) || isUnreadable(m) && g.mayLock(m, req) {
		return p
	}
	return p.Share.Others
}

// enforces decides about a request whose rule takes locks, or takes none.
//
// A lock protects an order only if every request that may settle the order takes it. So with
// locks, a share of orders leaves out only requests that certainly name other orders. It
// enforces a list if it contains any order of the share. It also enforces a request that
// cannot be read, and one whose body was not read yet. Otherwise a client could settle an
// order of the share without its lock: it would only have to spell the ID in an odd way.
//
// Without locks, an unreadable request is observed: the backend answers it. So is one that
// names no order and needs to name none.
func (s *Share) enforces(m *order.Match, header order.Header, locks bool) bool {
	switch {
	case s.Header != "":
		return s.HasHeader(header)
	case m.Result == order.Named:
		return s.hasOrder(m)
	case m.Result == order.Anonymous:
		return false
	case locks:
		return true
	}
	return m.Result == order.NeedsBody && m.ID != "" && s.hasOrder(m)
}

// mayLock reports whether a backend may read an unreadable request as one for which a rule takes locks:
// /orders/42%2Fsettle is /orders/{id} to the gate, and a settlement to some backends.
func (g *Gate) mayLock(m *order.Match, req *order.Request) bool {
	var l order.Match
	if g.matchLocking(req, &l) && g.policies[l.Rule].locksFor(req) {
		return true
	}
	return mayMeanOtherRule(m, req) && slices.ContainsFunc(g.policies, func(p Policy) bool { return p.Locks() && p.locksFor(req) })
}

// locksFor reports whether the share of a rule that takes locks may have this request.
func (p *Policy) locksFor(req *order.Request) bool {
	return p.Share == nil || p.Share.Header == "" || p.Share.HasHeader(req.Header)
}

// mayMeanOtherRule reports whether a backend may read the path, method or host of an unreadable
// request otherwise.
func mayMeanOtherRule(m *order.Match, req *order.Request) bool {
	switch m.Reason {
	case order.PathSpelling, order.PathNear, order.FrontController, order.OtherMethod, order.MethodOverride, order.URLOverride, order.HostOverride:
		return true
	}
	path, _, _ := strings.Cut(req.Target, "?")
	return m.Screening || strings.IndexFunc(path, isOddInPath) >= 0
}

// isOddInPath reports whether some backend may decode a character of a path, or end the path
// there.
func isOddInPath(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("/-._~", r)
}

// hasOrder reports whether any order of a request is in the share.
func (s *Share) hasOrder(m *order.Match) bool {
	has := func(id string) bool { return OrderPart(id) < s.Orders }
	if len(m.Batch) == 0 {
		return has(m.ID)
	}
	return slices.ContainsFunc(m.Batch, has)
}

// HasHeader reports whether a request has the share's header, exactly once, with its value.
func (s *Share) HasHeader(header order.Header) bool {
	value, lines := headerLines(header, s.Header)
	return lines == 1 && (s.Value == "" || value == s.Value)
}

// The key of OrderPart is constant: every instance has to enforce the same orders, in every
// release. Nobody keeps it secret. It is "ordergate: share" in ASCII, little endian.
const shareKey0, shareKey1 = 0x746167726564726f, 0x6572616873203a65

// OrderPart returns the part that an order belongs to, from 0 to AllOrders-1. A share of n
// has the orders of the parts below n, so a larger share has the orders of a smaller one. The
// ID is canonical.
//
// It is the high half of SipHash-2-4 times AllOrders, which is unbiased for this range
// (D. Lemire, Fast Random Integer Generation in an Interval, 2019).
func OrderPart(id string) int {
	hash := siphash.Hash(shareKey0, shareKey1, unsafe.Slice(unsafe.StringData(id), len(id)))
	part, _ := bits.Mul64(hash, AllOrders)
	return int(part)
}

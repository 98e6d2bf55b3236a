package lockmw

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/recurring"
)

// attributeCheck detects whether Envoy sends the attributes of an outcome
// (response_attributes).
type attributeCheck struct {
	seen    atomic.Bool // with at least one answer
	missing *recurring.Problem
}

// checkAttributes checks an answer's headers. If Envoy counts attempts in a header instead,
// its own answers may lack that header. So such an answer alone proves nothing.
func (s *Server) checkAttributes(call *gate.Call, r *gate.Response) {
	o := &s.attributes
	if !r.LacksAttributes() {
		if !o.seen.Load() {
			o.seen.Store(true)
		}
		return
	}
	if !r.HasServiceTime && o.seen.Load() {
		return
	}
	if !call.Observed() {
		s.opts.AttributesMissing()
	}
	o.missing.Note(call.LogArgs()...)
}

// authzCheck detects that Envoy's chain lacks ext_authz.
type authzCheck struct {
	without atomic.Int32 // requests that have come without it
	missing *recurring.Problem
}

// minWithoutAuthz requests do not come while ext_authz waits for ordergate's start.
const minWithoutAuthz = 20

// checkAuthz checks a request that has to have passed ext_authz: an enforced one that needs an answer, which
// is not sealed, or a lookup.
func (s *Server) checkAuthz(g *gate.Gate, rule string) {
	if g.NonePasses() && s.authz.without.Add(1) >= minWithoutAuthz {
		s.authz.missing.Note("rule", rule)
	}
}

// endCheck detects whether Envoy shows how answers end. With allow_mode_override: false it does
// not. Nor does Envoy 1.40 if a filter between ext_proc and the router adds trailers to an answer,
// as its decompressor does: FilterManager::encodeData does not pass them to a filter that has
// stopped, and the answer lasts until stream_idle_timeout.
type endCheck struct {
	shown   atomic.Bool  // at least once
	without atomic.Int32 // calls that have ended without it
	missing *recurring.Problem
	onShown func() // called once
}

// show notes that Envoy has shown an end.
func (c *endCheck) show() {
	if !c.shown.Load() && c.shown.CompareAndSwap(false, true) {
		c.onShown()
	}
}

// minWithoutEnd calls are no client that left.
const minWithoutEnd = 2

// endUnanswered handles the end of a call whose answer has not ended. A client that leaves
// causes the same, so it counts only while no answer has ended. Only an answer that has begun makes
// ordergate unready: a client can leave before at will.
func (s *Server) endUnanswered(call *gate.Call, begun bool) {
	if s.ends.shown.Load() || call.Observed() || s.ends.without.Add(1) < minWithoutEnd {
		return
	}
	if begun {
		s.opts.EndsMissing()
	}
	s.ends.missing.Note(call.LogArgs()...)
}

// cutOffWaits detects that Envoy gives ordergate less time than the wait for a lock may
// take (message_timeout). Such a stream ends like that of a client that leaves, as measured
// with Envoy 1.40: with EOF, and without a message of its answer. But all of them end after
// the same time.
type cutOffWaits struct {
	cut *recurring.Problem

	mu    sync.Mutex
	after time.Duration // the duration of the last wait
	at    time.Time     // when it ended
	same  int           // the number of consecutive waits with the same duration
}

const (
	// minSameWaits in a row are no coincidence.
	minSameWaits = 5
	// minInterval is the shortest interval between two waits that count. Waits that began
	// together may have ended with their connection.
	minInterval = 20 * time.Millisecond
	// minWait is shorter than any sensible timeout.
	minWait = 100 * time.Millisecond
)

// isSame reports whether enough consecutive waits, this one included, had the same
// duration. A busy machine may add a tenth and 50 ms.
func (c *cutOffWaits) isSame(now time.Time, after time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if after < minWait || now.Sub(c.at) < minInterval {
		return false
	}
	if difference := (after - c.after).Abs(); difference > c.after/10+50*time.Millisecond {
		c.same = 0
	}
	c.after, c.at = after, now
	c.same++
	return c.same >= minSameWaits
}

// bodyCheck detects whether Envoy sends the bodies that ordergate requests. With
// allow_mode_override: false it sends none, and forwards the request.
type bodyCheck struct {
	shown atomic.Bool  // Envoy has sent one
	ended atomic.Int32 // streams that have ended without a body, before Envoy has sent any

	unseen     *recurring.Problem
	neverShown *recurring.Problem
}

// maxEnded is the number of consecutive streams that may end without a body and without an
// answer. After more of them, Envoy may be the reason; fewer may be clients that left.
const maxEnded = 3

// endUnseen handles the end of a stream without a body and without an answer. Usually the
// client has left. An Envoy that sends neither bodies nor answers looks the same. So this
// does not make ordergate unready: clients could cause it at will. If the order is known
// without the body, only clients that leave look like this, because no backend serves the
// hidden path.
func (s *Server) endUnseen(call *gate.Call) {
	if !call.BodyEndOnly && !s.bodies.shown.Load() && s.bodies.ended.Add(1) >= maxEnded {
		s.bodies.neverShown.Note("rule", call.Rule())
	}
}

func (s *Server) reportUnseen(call *gate.Call) {
	s.opts.BodyUnseen()
	s.bodies.unseen.Note(call.LogArgs()...)
}

package gate

// The life of a lock around a call, as a state machine of plain values:
//
//	waiting --granted--> running --response--> answered --completed--> complete --storing, streamEnded--> closed
//	   |                    |                     |
//	   |                    |                     +--streamEnded--> closed
//	   |                    |                     +--lost--> broken --completed--> complete
//	   |                    |                                  +--streamEnded--> closed
//	   |                    +--unsent, streamEnded--> closed
//	   |                    +--lost--> ending --streamEnded--> closed
//	   |                                  +--response--> broken
//	   +--denied--> closed
//	   +--response, streamEnded--> abandoned --granted, denied--> closed
//
// Three things come to an end: a response is complete, a stream has ended, and the gate ends a call whose
// lease is lost.
//
// Every event may occur in every state, because the two sides race. A grant may cross an
// abort. An answer of Envoy's own, after a stream timeout for example, may arrive before the
// grant. An event that the diagram does not show changes nothing, but for a second response: the rest of
// the first does not come, and a known outcome becomes unknown.

// state is the state of a bracket.
type state int8

const (
	waiting   state = iota // the lock was requested; the request has not been forwarded
	running                // the lock is held and the request was forwarded
	answered               // the response's headers have arrived: the backend may still be at work
	complete               // the response is complete
	ending                 // the lease ended first: the gate is ending the call
	broken                 // the gate is ending the call, and the response's headers have arrived
	abandoned              // the caller has left, or Envoy has answered, but the lock may still be granted
	closed                 // what becomes of the lock is decided
)

// event is an input of the bracket.
type event int8

const (
	granted     event = iota // the lock is ours
	denied                   // the lock was refused, finally
	unsent                   // the adapter could not forward the request: Envoy is gone
	response                 // the response's headers have arrived
	completed                // the response is complete
	storing                  // the answer is stored before its end is passed on
	lost                     // the lease has ended or is about to, and is not renewed
	streamEnded              // the stream is over
)

// effect is what the call does after an event.
type effect int8

const (
	nothing effect = iota
	forward        // forward the request, with the lease's headers
	refuse         // answer in place of the backend
	endCall        // answer in place of the backend, although the request was forwarded
	cancel         // cancel the pending Acquire
	release        // release the lock
	hold           // keep the lock, without renewing it, until its hold time ends
)

// bracket is one call with a lock. The zero value is waiting.
type bracket struct {
	state   state
	outcome Outcome // set once answered
}

// on applies an event and returns the effect. The outcome is read with the event response
// only. Of a lock that is granted to a call, no other place decides when it is released: on returns release only
// if the request was certainly not forwarded, or if the outcome is known. (A call that is denied gives back the
// other lock that it has got.)
func (b *bracket) on(e event, outcome Outcome) effect {
	switch b.state {
	case waiting:
		return b.onWaiting(e)
	case running:
		return b.onRunning(e, outcome)
	case answered, complete, ending, broken:
		return b.onAnswered(e, outcome)
	case abandoned:
		switch e {
		case granted: // the grant crossed the cancel: release it, nothing was forwarded
			b.state = closed
			b.outcome = OutcomeNotForwarded
			return release
		case denied:
			b.state = closed
		}
	case closed:
	}
	return nothing
}

func (b *bracket) onWaiting(e event) effect {
	switch e {
	case granted:
		b.state = running
		return forward
	case denied:
		b.state = closed
		b.outcome = OutcomeNotForwarded
		return refuse
	case response, streamEnded:
		// The request waits in Envoy for our reply. So a response can only be Envoy's own,
		// and an end means that the client left.
		b.state = abandoned
		b.outcome = OutcomeNotForwarded
		return cancel
	}
	return nothing
}

func (b *bracket) onRunning(e event, outcome Outcome) effect {
	switch e {
	case unsent:
		b.state = closed
		b.outcome = OutcomeNotForwarded
		return release
	case response:
		b.state = answered
		b.outcome = outcome
	case lost:
		b.state = ending
		return endCall
	case streamEnded: // no answer: the client or Envoy left, the backend may still be at work
		b.state = closed
		b.outcome = OutcomeUnknown
		return hold
	}
	return nothing
}

// onAnswered handles a call that was answered, or that the gate is ending.
func (b *bracket) onAnswered(e event, outcome Outcome) effect {
	switch {
	case e == response && b.state == ending: // it crossed our reply
		b.state = broken
		b.outcome = outcome
	case e == response && b.isCutOff(): // another answer, in place of the rest of the first
		b.outcome = OutcomeUnknown
	case e == lost && b.state == answered && b.outcome != OutcomeNotForwarded:
		b.state = broken
		return endCall
	case e == completed && (b.state == answered || b.state == broken):
		b.state = complete
	case e == storing && b.state == complete && b.outcome == OutcomeKnown:
		b.state = closed
		return release
	case e == streamEnded:
		if b.isCutOff() {
			b.outcome = OutcomeUnknown
		}
		b.state = closed
		if b.outcome == OutcomeUnknown {
			return hold
		}
		return release
	}
	return nothing
}

// isCutOff reports whether the backend's answer has begun but is not complete. A script may print
// its page before it charges the customer.
func (b *bracket) isCutOff() bool {
	return (b.state == answered || b.state == broken) && b.outcome == OutcomeKnown
}

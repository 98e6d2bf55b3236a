package gate

// The life of a lock around a call, as a state machine of plain values:
//
//	waiting --granted--> running --response--> answered --finished--> done --end--> closed
//	   |                    |                     |
//	   |                    |                     +--end--> closed
//	   |                    +--unsent, end--> closed
//	   |                    +--lost--> ending --end--> closed
//	   |                                  +--response--> answered
//	   +--denied--> closed
//	   +--response, end--> abandoned --granted, denied--> closed
//
// Every event may come in every state, since the two sides race: a grant
// crosses an abort, an answer of Envoy's own (a stream timeout, say) overtakes
// the grant. What is not drawn changes nothing.

// state is where a bracket stands.
type state int8

const (
	waiting   state = iota // the lock is asked for; the request has not been forwarded
	running                // the lock is held and the request was passed on
	answered               // the response's headers have come: the backend may still be at work
	done                   // the response has come to its end
	ending                 // the lease went first: the call is being ended
	abandoned              // nobody wants the lock any more, but it may still be granted
	closed                 // nothing is held
)

// event is what can happen to a bracket.
type event int8

const (
	granted  event = iota // the lock is ours
	denied                // it is not, and will not be
	unsent                // the request could not be passed on: Envoy is gone
	response              // the response's headers have come
	finished              // so has its end
	lost                  // the lease has ended, or will soon, and is renewed no more
	ended                 // the stream is over
)

// effect is what has to be done about an event.
type effect int8

const (
	nothing effect = iota
	forward        // pass the request on, with the lease's headers
	refuse         // answer in the backend's stead
	end            // the same, although the request was passed on
	cancel         // stop asking for the lock
	release        // give the lock up
	hold           // keep it, unrenewed, until its hold time ends
)

// bracket is one such life. The zero value waits.
type bracket struct {
	state   state
	outcome Outcome // known once answered
}

// on moves the bracket and says what to do. The outcome counts with response
// only. It is the whole of G3: release is returned only when the request was
// certainly not forwarded or its outcome is known.
func (b *bracket) on(e event, outcome Outcome) effect {
	switch b.state {
	case waiting:
		return b.onWaiting(e)
	case running:
		return b.onRunning(e, outcome)
	case answered, done, ending:
		return b.onAnswered(e, outcome)
	case abandoned:
		switch e {
		case granted: // it crossed our cancel: give it back, nothing was forwarded
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
	case response, ended:
		// The request waits in Envoy for our word, so an answer to it can only be
		// Envoy's own, and the end that of the client's patience.
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
		return end
	case ended: // without an answer: the client or Envoy gave up, the backend may not have
		b.state = closed
		b.outcome = OutcomeUnknown
		return hold
	}
	return nothing
}

// onAnswered is for a call that was answered, or is being ended.
func (b *bracket) onAnswered(e event, outcome Outcome) effect {
	switch {
	case e == response && b.state == ending: // it crossed our word
		b.state = answered
		b.outcome = outcome
	case e == finished && b.state == answered:
		b.state = done
	case e == ended:
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

// isCutOff reports whether the backend's answer has begun, and not come to its end. A script
// may print its page before it pays.
func (b *bracket) isCutOff() bool { return b.state == answered && b.outcome == OutcomeKnown }

package gate

import (
	"fmt"
	"testing"
)

// TestEveryOrderOfEvents runs the bracket through every sequence of events, with
// every outcome, that is no longer than any real life of one, and holds each
// against what has to be true of it.
func TestEveryOrderOfEvents(t *testing.T) {
	const longest = 6
	var events []step
	for e := granted; e <= streamEnded; e++ {
		events = append(events, step{e, OutcomeUnknown})
	}
	events = append(events, step{response, OutcomeKnown}, step{response, OutcomeNotForwarded})

	sequences := 0
	var extend func(history []step)
	extend = func(history []step) {
		sequences++
		checkHistory(t, history)
		if len(history) == longest || t.Failed() {
			return
		}
		for _, e := range events {
			extend(append(history[:len(history):len(history)], e))
		}
	}
	extend(nil)
	t.Logf("%d sequences", sequences)
}

type step struct {
	event   event
	outcome Outcome
}

func checkHistory(t *testing.T, history []step) {
	t.Helper()
	var b bracket
	got := map[effect]int{}
	var held, forwarded, over bool // of the lock, the request and the stream
	var learned *Outcome           // of the responses after forwarding
	var whole bool                 // that response is complete
	fail := func(what string) { t.Errorf("%s after %s", what, describe(history)) }

	for _, s := range history {
		wasForwarded, wasOver := forwarded, over
		e := b.on(s.event, s.outcome)
		got[e]++
		if s.event == granted && !held && got[forward]+got[release]+got[hold] > 0 {
			held = true
		}
		switch e {
		case forward:
			forwarded = true
			if wasOver {
				fail("forwarded a request that is over")
			}
		case refuse:
			if wasForwarded {
				fail("refused a request that was forwarded")
			}
		case endCall:
			if !wasForwarded || learned != nil && (*learned == OutcomeNotForwarded || whole) {
				fail("ended a call that was not under way")
			}
		case release:
			knownOutcome := learned != nil && (*learned == OutcomeNotForwarded || *learned == OutcomeKnown && whole)
			if wasForwarded && s.event != unsent && !knownOutcome {
				fail("released a lock whose call may be running")
			}
		case hold:
			if !wasForwarded {
				fail("held a lock for a request that was never forwarded")
			}
			if learned != nil && (*learned == OutcomeNotForwarded || *learned == OutcomeKnown && whole) {
				fail("held a lock whose outcome is known")
			}
		}
		switch unknown := OutcomeUnknown; {
		case s.event != response || !wasForwarded || got[release]+got[hold] > 0:
		case learned == nil:
			o := s.outcome
			learned = &o
		case *learned == OutcomeKnown && !whole: // the rest of it does not come
			learned = &unknown
		}
		whole = whole || learned != nil && s.event == completed
		if s.event == streamEnded || s.event == response && !wasForwarded {
			over = true
		}
	}
	if got[forward] > 1 || got[refuse] > 1 || got[forward]+got[refuse] > 1 {
		fail("answered the request's headers twice")
	}
	if got[endCall] > 1 {
		fail("ended a call twice")
	}
	if got[release]+got[hold] > 1 {
		fail("gave the lock up twice")
	}
	if last := len(history) - 1; last >= 0 && history[last].event == streamEnded && got[forward] == 1 && got[release]+got[hold] != 1 {
		fail("kept a lock whose stream is over")
	}
}

// TestGrantThatCrossesAnAbort has the client leave before the lock is granted. The lock must not
// stay.
func TestGrantThatCrossesAnAbort(t *testing.T) {
	for _, abort := range []event{streamEnded, response} {
		var b bracket
		if got := b.on(abort, OutcomeUnknown); got != cancel {
			t.Fatalf("abort: effect %d, want cancel", got)
		}
		if got := b.on(granted, OutcomeUnknown); got != release {
			t.Errorf("grant after the abort: effect %d, want release", got)
		}
	}
}

func describe(history []step) string {
	names := []string{"granted", "denied", "unsent", "response", "completed", "storing", "lost", "streamEnded"}
	text := ""
	for _, s := range history {
		text += " " + names[s.event]
		if s.event == response {
			text += fmt.Sprintf("(%s)", s.outcome)
		}
	}
	return "[" + text + " ]"
}

package gate_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

// TestConversations has the call alone take part in all kinds of conversations: each lock that it gets is
// released or held once, and each order that may be new is learned or leaves a mark.
func TestConversations(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := gatetest.Conversations(rt)
		report := c.Play(t)
		lock, rest, _ := strings.Cut(report, "\n")
		granted := c.IsLocked() && c.Grant == "granted"
		if ends := strings.Count(lock, "release") + strings.Count(lock, "hold"); ends != map[bool]int{true: 1}[granted] {
			rt.Errorf("the lock ends %d times", ends)
		}
		if a := c.Answer; granted && (a == nil || a.End == "" || c.Lost == "before") && strings.Contains(lock, "release") && !strings.Contains(rest, "closed not_forwarded") && !isKnownByLength(c) {
			rt.Error("the lock is released although the call may run")
		}
		if t.Failed() || rt.Failed() {
			rt.Logf("%+v %+v\n%s", c, c.Answer, report)
		}
	})
}

// isKnownByLength reports whether the client has all of an answer that is stored before its end is shown.
func isKnownByLength(c gatetest.Conversation) bool {
	return c.Answer != nil && c.Path != "/locked" &&
		slices.ContainsFunc(c.Answer.Header, func(line [2]string) bool { return line[0] == "content-length" })
}

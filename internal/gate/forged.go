package gate

import (
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/headername"
	"github.com/ordergate/ordergate/internal/order"
)

// Owned are the headers that ordergate sets on a request. An adapter removes a client's
// copy of them from every request that it forwards, and [Forged] headers too. It may keep
// one that it overwrites, or that another adapter has set.
var Owned = [...]string{HeaderKey, HeaderFence, HeaderLease, HeaderVerdict}

// URLOverrides are headers with which a client could name a path that no rule has checked. An
// adapter removes them from every request without a rule.
var URLOverrides = [...]string{"x-original-url", "x-rewrite-url"}

// AnswerOptions are headers with which a client could replace the answer to a call that has acted,
// or make it unreadable. Apache cuts a script's answer to a Range, or replaces it by 416, for
// every method. In front of PHP-FPM or CGI, it looks at the preconditions of a GET when the script has
// run, and answers 412 or 304; so does Spring 3.5 for a ResponseEntity with a date or an ETag. Of
// other methods they do not. See [Call.AnswerOptions].
var AnswerOptions = [...]string{
	"accept-encoding", "range", "if-range",
	"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", // by GET or HEAD only
}

const preconditions = 4 // at the end of AnswerOptions

// IsForged reports whether an adapter removes a header from every request: only ordergate may
// send it, or a server may take it for such a header or for one of [AnswerOptions]. They are
// other spellings of [Owned] and of AnswerOptions, and headers for clients; both as they are
// are left out.
func IsForged(name string) bool {
	respells := func(option string) bool { return name != option && headername.Equal(name, option) }
	return order.IsOurs(name) && !slices.Contains(Owned[:], name) || slices.ContainsFunc(AnswerOptions[:], respells)
}

// Forged returns the headers of a request for which [IsForged] is true. The names are as they
// were sent, and are copies. Nearly all requests have none, which costs no allocation.
func Forged(header order.Header) (names []string) {
	for name := range order.All(header) {
		if IsForged(name) && !slices.Contains(names, name) {
			names = append(names, strings.Clone(name))
		}
	}
	return names
}

// answerOptions returns those of [AnswerOptions] that the adapter removes from the request.
func (c *Call) answerOptions() []string {
	switch acts := c.policy != nil && c.NeedsAnswer && (c.policy.Create != nil || c.once != nil); {
	case acts && c.reads && !c.policy.Observe:
		return AnswerOptions[:]
	case acts, c.lookup != nil && c.policy.Answers.readsBody():
		return AnswerOptions[:len(AnswerOptions)-preconditions]
	}
	return nil
}

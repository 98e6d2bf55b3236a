package gate

import (
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// Owned are the headers that ordergate sets on a request. An adapter removes a client's
// copy of them from every request that it forwards, and [Forged] headers too. It may keep
// one that it overwrites, or that another adapter has set.
var Owned = [...]string{HeaderKey, HeaderFence, HeaderLease, HeaderVerdict}

// URLOverrides are headers with which a client could name a path that no rule has checked. An
// adapter removes them from every request without a rule.
var URLOverrides = [...]string{"x-original-url", "x-rewrite-url"}

// AnswerOptions are headers with which a client could make the answer to a create unreadable.
// Apache cuts a script's answer to a Range, or replaces it by 416, whatever the method. An
// adapter removes them from every create.
var AnswerOptions = [...]string{"accept-encoding", "range", "if-range"}

// isOwned reports whether a header is one of [Owned], spelled exactly so.
func isOwned(name string) bool { return slices.Contains(Owned[:], name) }

// Forged returns the request headers that only ordergate may send, or that a server may
// take for one of them. They are other spellings of [Owned], and headers for clients.
// [Owned] itself is left out. The names are as they were sent, and are copies. Nearly all
// requests have none, which costs no allocation.
func Forged(header order.Header) (names []string) {
	for cursor := 0; ; {
		name, _, next := header.Next(cursor)
		if next < 0 {
			return names
		}
		cursor = next
		if order.IsOurs(name) && !isOwned(name) && !slices.Contains(names, name) {
			names = append(names, strings.Clone(name))
		}
	}
}

package gate

import (
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// Owned are the headers that ordergate sets on a request. What a client sent of them, an
// adapter removes from every request that it passes on, and from a request with [Forged]
// headers also those. An adapter may leave one that it sets itself, or another one has set.
var Owned = [...]string{HeaderKey, HeaderFence, HeaderLease, HeaderVerdict}

// IsOwned reports whether a header is one of [Owned], in its only spelling.
func IsOwned(name string) bool { return slices.Contains(Owned[:], name) }

// Forged returns the names of those headers of a request that only ordergate may send, or
// that a server may take for such, but for [Owned]: other spellings, and headers that go to
// clients only. They are as they were sent, and have no part of the request's memory. Nearly
// all requests have none, which costs no allocation.
func Forged(header order.Header) (names []string) {
	for cursor := 0; ; {
		name, _, next := header.Next(cursor)
		if next < 0 {
			return names
		}
		cursor = next
		if order.IsOurs(name) && !IsOwned(name) && !slices.Contains(names, name) {
			names = append(names, strings.Clone(name))
		}
	}
}

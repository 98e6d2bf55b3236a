package locking

import (
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
)

// composedKey is the key of a lock of orders whose IDs have parts.
type composedKey struct {
	texts []string // around the variables
	index []int    // of each variable among the parts of a full ID, whose last part is the order's own ID
	size  int      // of the texts, in bytes
}

// withParts returns the locker for IDs with parts, in the order of the names: "acme/42". A key
// with these parts is refused by package config if two orders could have the same.
func (g GateLocker) withParts(names []string) GateLocker {
	if len(names) == 0 {
		return g
	}
	t := config.NewKeyTemplate(g.before+"{id}"+g.after, names)
	k := &composedKey{texts: t.Texts}
	for _, name := range t.Names {
		at := len(names) // the order's own ID
		for i := range names {
			if names[i] == name {
				at = i
			}
		}
		k.index = append(k.index, at)
	}
	for _, text := range t.Texts {
		k.size += len(text)
	}
	g.composed = k
	return g
}

// key returns the key of a full ID. Without allocating, except the key.
func (k *composedKey) key(id string) string {
	var b strings.Builder
	b.Grow(k.size + len(id))
	for i, at := range k.index {
		b.WriteString(k.texts[i])
		b.WriteString(order.PartAt(id, at))
	}
	b.WriteString(k.texts[len(k.index)])
	return b.String()
}

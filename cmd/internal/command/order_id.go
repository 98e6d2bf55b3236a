package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/rules"
)

// canonicalID returns the canonical form of an order ID with its parts, as the first of some
// rules that accepts it reads it in requests, and that rule. Otherwise it returns a usageError
// that says what the rules want; of names them, as in "rule settle".
func canonicalID(id, of string, by ...*config.Rule) (canonical string, rule *config.Rule, err error) {
	var wanted []string
	for _, r := range by {
		canonical, ok, err := rules.Canonical(r, id)
		if err != nil || ok {
			return canonical, r, err
		}
		if text := rules.Wanted(r); !slices.Contains(wanted, text) {
			wanted = append(wanted, text)
		}
	}
	return "", nil, usageError{fmt.Errorf("%q is no order ID of %s: want %s", id, of, visible(strings.Join(wanted, ", or ")))}
}

// takersOf returns the rules that take a lock. For a rule whose settle.limit is the lock, it
// returns a rule with the IDs of the limit.
func takersOf(c *config.Config, lock string) (takers []*config.Rule) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.OrderLock() == lock {
			takers = append(takers, r)
		}
		if r.Settle != nil && r.Settle.Limit != nil && r.Settle.Limit.Lock == lock {
			takers = append(takers, &config.Rule{Name: r.Name, IDs: []config.ID{r.Settle.Limit.ID}})
		}
	}
	return takers
}

// orderKey returns the key of the lock of an order.
func orderKey(c *config.Config, lock string, r *config.Rule, canonical string) string {
	return locking.KeyLocker(c, lock, r, false).Key(canonical)
}

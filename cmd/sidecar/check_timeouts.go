package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/engine"
)

// ruleTimeouts is the JSON that check --timeouts prints for a rule with a create.
type ruleTimeouts struct {
	Rule           string        `json:"rule"`
	Held           admin.Seconds `json:"held_seconds"`
	MessageTimeout admin.Seconds `json:"message_timeout_seconds"`
	RouteTimeout   admin.Seconds `json:"route_timeout_beyond_backend_seconds"`
}

// printTimeouts prints the longest time that each rule may delay the answer to a create,
// and the shortest timeouts of Envoy that are long enough.
func printTimeouts(w io.Writer, c *config.Config, asJSON bool) error {
	held := engine.AnswerDelays(c)
	if asJSON {
		rules := make([]ruleTimeouts, 0, len(held))
		for _, h := range held {
			timeout := admin.Seconds(h.MessageTimeout)
			rules = append(rules, ruleTimeouts{h.Rule, admin.Seconds(h.Longest), timeout, timeout})
		}
		return json.NewEncoder(w).Encode(map[string]any{"rules": rules})
	}
	if len(held) == 0 {
		_, err := fmt.Fprintln(w, "no rule creates orders: no answer is held")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tANSWER HELD FOR\tMESSAGE_TIMEOUT\tROUTE TIMEOUT")
	for _, h := range held {
		fmt.Fprintf(table, "%s\tup to %v\tat least %v\tat least %v more than the backend takes\n", h.Rule, h.Longest, h.MessageTimeout, h.MessageTimeout)
	}
	return table.Flush()
}

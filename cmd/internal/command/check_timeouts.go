package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/timeouts"
)

// ruleTimeouts is the JSON that check --timeouts prints for a rule with a create.
type ruleTimeouts struct {
	Rule           string        `json:"rule"`
	Held           admin.Seconds `json:"held_seconds"`
	MessageTimeout admin.Seconds `json:"message_timeout_seconds"`
	RouteTimeout   admin.Seconds `json:"route_timeout_beyond_backend_seconds"`
}

// ruleWait is the JSON that check --timeouts prints for the waits of a rule.
type ruleWait struct {
	Rule    string        `json:"rule"`
	Keys    []string      `json:"keys"`
	Longest admin.Seconds `json:"longest_seconds"`
	Timeout string        `json:"envoy"`
	Least   admin.Seconds `json:"least_seconds"`
}

// printTimeouts prints the longest time that each rule may delay the answer to a create, and a
// request, and the shortest timeouts of Envoy that are long enough.
func printTimeouts(w io.Writer, c *config.Config, asJSON bool) error {
	held, waits := timeouts.AnswerDelays(c), timeouts.RequestWaits(c)
	if asJSON {
		rules := make([]ruleTimeouts, 0, len(held))
		for _, h := range held {
			timeout := admin.Seconds(h.MessageTimeout)
			rules = append(rules, ruleTimeouts{h.Rule, admin.Seconds(h.Longest), timeout, timeout})
		}
		waiting := make([]ruleWait, 0, len(waits))
		for _, r := range waits {
			waiting = append(waiting, ruleWait{r.Rule, r.Keys, admin.Seconds(r.Longest), r.Timeout, admin.Seconds(r.Least)})
		}
		return json.NewEncoder(w).Encode(map[string]any{"rules": rules, "waits": waiting})
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(held) == 0 {
		fmt.Fprintln(table, "no rule creates orders: no answer is held")
	} else {
		fmt.Fprintln(table, "RULE\tANSWER HELD FOR\tMESSAGE_TIMEOUT\tROUTE TIMEOUT")
	}
	for _, h := range held {
		fmt.Fprintf(table, "%s\tup to %v\tat least %v\tat least %v more than the backend takes\n", h.Rule, h.Longest, h.MessageTimeout, h.MessageTimeout)
	}
	if len(waits) > 0 {
		fmt.Fprintln(table, "\nRULE\tREQUEST WAITS FOR\tTIMEOUT OF ENVOY\tKEYS")
	}
	for _, r := range waits {
		fmt.Fprintf(table, "%s\tup to %v\t%s at least %v\t%s\n", r.Rule, r.Longest, r.Timeout, r.Least, strings.Join(r.Keys, " + "))
	}
	return table.Flush()
}

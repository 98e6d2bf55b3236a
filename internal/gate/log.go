package gate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// LogRefused leaves a line at debug for a request that was refused. Without that level it
// costs next to nothing. A flood of refusals is what ordergate is for: no other level has a
// line for each.
func (g *Gate) LogRefused(log *slog.Logger, d *Decision, header order.Header) {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		logRefused(log, d, logArgs(g.policies[d.Rule].Rule.Name, d.ID, requestID(header)))
	}
}

// LogRefused is [Gate.LogRefused] for a call.
func (c *Call) LogRefused(log *slog.Logger) {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		logRefused(log, &c.Decision, c.LogArgs())
	}
}

func logRefused(log *slog.Logger, d *Decision, about []any) {
	args := slices.Concat(about, []any{"verdict", d.Verdict.String()})
	if d.Reason != order.NoReason {
		args = append(args, "reason", d.Reason.Name())
	}
	log.Debug("refused", args...)
}

// LogArgs returns what a log line says of a call's request, as the arguments of [slog.Logger]:
// its rule, its order or orders, and the ID by which Envoy's access log has it. What is not
// known is left out.
func (c *Call) LogArgs() []any {
	orders := c.Decision.ID
	switch n := len(c.lockRequest.IDs); {
	case n > 1:
		orders = fmt.Sprintf("%s and %d more", c.lockRequest.IDs[0], n-1)
	case orders == "":
		orders = c.namedID
	}
	return logArgs(c.policy.Rule.Name, orders, c.requestID)
}

func logArgs(rule, orders, request string) []any {
	args := []any{"rule", rule}
	if orders != "" {
		args = append(args, "order", printable(orders))
	}
	if request != "" {
		args = append(args, "request", request)
	}
	return args
}

// printable returns a text that a terminal only shows: a handler of logs may leave a character
// beyond ASCII as it is.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f }) < 0 {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// requestID returns a request's ID: visible ASCII, and short. "": it has none that is of use.
func requestID(header order.Header) string {
	_, id, _ := leaseAndRequestID(header)
	return id
}

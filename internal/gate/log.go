package gate

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

func logRefused(log *slog.Logger, d *Decision, about []any) {
	args := slices.Concat(about, []any{"verdict", d.Verdict.String()})
	if d.Reason != order.NoReason {
		args = append(args, "reason", d.Reason.Name())
	}
	log.Debug("refused", args...)
}

// LogArgs returns the log attributes of a call's request, as arguments of [slog.Logger]:
// its rule, its order or orders, and the request ID of Envoy's access log. It leaves out
// what is unknown.
func (c *Call) LogArgs() []any {
	orders := c.Decision.ID
	if n := len(c.lockRequest.IDs); n > 1 {
		orders = fmt.Sprintf("%s and %d more", c.lockRequest.IDs[0], n-1)
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

// printable escapes a text so that a terminal shows it as it is. Some log handlers leave
// characters beyond ASCII unescaped.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f }) < 0 {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// requestID returns a request's ID: short, visible ASCII. "": there is none, or it is
// unusable.
func requestID(header order.Header) string {
	_, id, _ := leaseAndRequestID(header)
	return id
}

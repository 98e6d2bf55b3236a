package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/headername"
	"github.com/ordergate/ordergate/internal/order"
)

// Require is what must hold before a settlement is forwarded.
type Require struct {
	Conditions Conditions
	// Headers are the request headers whose values the conditions use, in lower case. Each
	// must be in the request once.
	Headers []string
	// Otherwise are the answers when a condition does not hold, in the order of the
	// conditions. There are at most MaxConditions.
	Otherwise []Reply
}

// MaxConditions bounds the conditions of a policy.
const MaxConditions = 16

// Conditions checks the conditions of a rule. Its method is safe for concurrent use.
type Conditions interface {
	// Check returns nil if all conditions hold for each of the orders, an [UnmetError] of the
	// first one that does not, a [ConditionError] if Redis answers and cannot check one, and any
	// other error if Redis does not answer. Headers are the
	// values of [Require.Headers], in their order. Check blocks until ctx ends at most.
	Check(ctx context.Context, ids, headers []string) error
}

// UnmetError is the error of [Conditions] if one does not hold.
type UnmetError struct{ Condition int } // its index

func (e *UnmetError) Error() string {
	return fmt.Sprintf("condition %d of the settlement does not hold", e.Condition+1)
}

// ConditionError is the error of a [Locker] and of [Conditions] if a condition cannot be checked:
// its key holds something else, or the user of Redis has no right to it.
type ConditionError struct {
	Name  string // of the condition
	Key   string
	Cause string // what Redis answered
}

// Error implements error. It leaves the key to the log line.
func (e *ConditionError) Error() string {
	return "condition " + e.Name + " cannot be checked: " + e.Cause
}

// maxHeaderValue bounds the values that conditions use, in bytes. They become parts of keys.
const maxHeaderValue = 128

// headerValues returns copies of the values of the headers that the conditions use, or the
// reason to refuse the request. A backend may read a header of another spelling as one of
// them, with another value.
func (r *Require) headerValues(header order.Header) (values []string, why order.Reason) {
	if len(r.Headers) == 0 {
		return nil, order.NoReason
	}
	values = make([]string, len(r.Headers))
	for name, value := range order.All(header) {
		for i, wanted := range r.Headers {
			switch {
			case name != wanted && !headername.Equal(name, wanted):
			case name != wanted || values[i] != "":
				return nil, order.RepeatedHeader
			case !ValidHeaderValue(value):
				return nil, order.MalformedHeader
			default:
				values[i] = strings.Clone(value)
			}
		}
	}
	if slices.Contains(values, "") {
		return nil, order.MissingHeader
	}
	return values, order.NoReason
}

// ValidHeaderValue reports whether a condition can use the value of a header. It accepts 1 to 128
// letters, digits and . _ : -. None of them separates keys, or opens the hash tag of a cluster.
func ValidHeaderValue(value string) bool {
	if value == "" || len(value) > maxHeaderValue {
		return false
	}
	for i := range len(value) {
		c := value[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == ':' || c == '-') {
			return false
		}
	}
	return true
}

// prepareConditions reads the headers that the rule's conditions use. The reason is why the
// request is refused: it does not have what they need. In observe mode, such a request has
// nothing to lock.
func (c *Call) prepareConditions(header order.Header) order.Reason {
	if c.policy.Settle == nil || c.policy.Settle.Require == nil || len(c.lockRequest.IDs) == 0 {
		return order.NoReason
	}
	r := c.policy.Settle.Require
	values, why := r.headerValues(header)
	if why != order.NoReason {
		c.lockRequest.IDs = nil
		return why
	}
	c.conditionValues = values
	return order.NoReason
}

// conditions returns those that must hold before the call is forwarded; nil: there are none.
func (p *Policy) conditions() Conditions {
	if p.Settle == nil || p.Settle.Require == nil {
		return nil
	}
	return p.Settle.Require.Conditions
}

// ConditionHeaders returns the header values that the conditions of the call use.
func (c *Call) ConditionHeaders() []string { return c.conditionValues }

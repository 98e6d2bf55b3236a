package decisionlog

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ordergate/ordergate/internal/gate"
)

// How orders are written.
const (
	Plain  = "plain"
	Hashed = "hashed" // see Options.Secret
	None   = "none"
)

// Options says what is logged, and where to.
type Options struct {
	To       string   // "stdout", "stderr", or the path of a file
	Rules    []string // empty: all
	Verdicts []string // empty: all
	Sample   float64  // the share of lookups, 0 to 1
	IDs      string   // Plain, Hashed or None
	Secret   string   // for Hashed: HMAC-SHA256 of the order, of which 16 bytes are written in hexadecimal
}

// Selection is what a gate logs to. It implements gate.DecisionLog.
type Selection struct {
	log   *Log
	wants [][gate.Verdicts]bool // by rule, the last one for none
	below uint64                // a lookup is logged if a random number is less than this
}

// Select returns the log of a gate with these rules, in the order of its policies.
func (l *Log) Select(rules []string) *Selection {
	s := &Selection{log: l, wants: make([][gate.Verdicts]bool, len(rules)+1)}
	has := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	for i, rule := range append(slices.Clip(rules), "") {
		for v := range gate.Verdict(gate.Verdicts) {
			s.wants[i][v] = has(l.opts.Rules, rule) && has(l.opts.Verdicts, v.String())
		}
	}
	if s.below = math.MaxUint64; l.opts.Sample < 1 {
		s.below = uint64(l.opts.Sample * (1 << 64))
	}
	return s
}

// Wants implements gate.DecisionLog.
func (s *Selection) Wants(rule int, a gate.Action, v gate.Verdict) bool {
	if rule < 0 {
		return s.wants[len(s.wants)-1][v]
	}
	return s.wants[rule][v] && (a != gate.ActionLookup || s.below == math.MaxUint64 || rand.Uint64() < s.below)
}

// lines holds the memory in which lines are made.
var lines = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// Write implements gate.DecisionLog.
func (s *Selection) Write(d *gate.LoggedDecision) {
	kind := Others
	if d.Acted() {
		kind = Acted
	}
	b := lines.Get().(*[]byte)
	*b = s.log.appendLine((*b)[:0], d, time.Now())
	s.log.add(kind, *b)
	lines.Put(b)
}

// maxText bounds a text of a line, in bytes: the keys of many orders.
const maxText = 1 << 10

// timeFormat is RFC 3339 with microseconds.
const timeFormat = "2006-01-02T15:04:05.000000Z"

// appendLine appends a decision. The fields are those of docs/explain.md.
func (l *Log) appendLine(b []byte, d *gate.LoggedDecision, now time.Time) []byte {
	b = now.UTC().AppendFormat(append(b, `{"time":"`...), timeFormat)
	b = append(b, '"')
	text := func(name, value string) {
		if value == "" {
			return
		}
		b = append(append(append(b, `,"`...), name...), `":`...)
		if len(value) > maxText {
			value = value[:maxText] + "..."
		}
		b, _ = jsontext.AppendQuote(b, value) // the error is about text that is not UTF-8, which it replaces
	}
	number := func(name string, value int) {
		b = strconv.AppendInt(append(append(append(b, `,"`...), name...), `":`...), int64(value), 10)
	}
	ms := func(name string, value time.Duration) {
		if value >= 50*time.Microsecond {
			b = append(append(append(b, `,"`...), name...), `":`...)
			b = strconv.AppendFloat(b, float64(value)/float64(time.Millisecond), 'f', 1, 64)
		}
	}
	text("rule", d.Rule)
	if d.Rule != "" {
		text("action", d.Action.String())
		mode := "enforce"
		if d.Observed {
			mode = "observe"
		}
		text("mode", mode)
	}
	text("verdict", d.Verdict.String())
	text("reason", d.Reason)
	if d.Reason != "" && d.Offset >= 0 {
		number("offset", d.Offset)
	}
	text("order", l.Order(d.Order))
	if d.Orders > 1 {
		number("orders", d.Orders)
	}
	text("request", d.Request)
	text("trace", d.Trace)
	ms("wait_ms", d.Waited)
	ms("held_ms", d.Held)
	if l.opts.IDs == Plain { // it contains the order
		text("key", d.Key)
	}
	text("fence", d.Fence)
	text("outcome", d.Outcome)
	if d.Status > 0 {
		number("status", d.Status)
	}
	return append(b, "}\n"...)
}

// Order returns an order as the log has it; "": without a log, or if it has none.
func (l *Log) Order(order string) string {
	switch {
	case l == nil || order == "":
	case l.opts.IDs == Plain:
		return order
	case l.opts.IDs == Hashed:
		return l.secret.hash(order)
	}
	return ""
}

// keyed is a hash with a key.
type keyed struct{ pool sync.Pool }

func newKeyed(secret string) *keyed {
	return &keyed{sync.Pool{New: func() any { return hmac.New(sha256.New, []byte(secret)) }}}
}

// hashBytes are written of a hash: two orders meet in one of 2^64 lines.
const hashBytes = 16

func (k *keyed) hash(text string) string {
	h := k.pool.Get().(hash.Hash)
	defer k.pool.Put(h)
	h.Reset()
	h.Write([]byte(text)) // it returns no error
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0])[:hashBytes])
}

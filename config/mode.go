package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// Rule modes.
const (
	ModeEnforce = "enforce"
	ModeObserve = "observe" // decide and count, change nothing
)

// Mode is what ordergate enforces of a rule. A file has a word, {enforce: 10%}, or
// {enforce: {header: x-canary}}.
type Mode struct {
	Word string // ModeEnforce or ModeObserve
	// Share is a percentage of the orders, or requests with a header. The others are observed. The zero
	// value stands for all requests.
	Share Share `mapstructure:"enforce"`
}

// Share is a part of the requests: of a part of the orders, or with a header. One of Orders
// and Header is set.
type Share struct {
	// Orders is how many of 10,000 orders, 1 to 10,000: hundredths of a percent. A file has a
	// percentage, such as 10% or 0.25%. Package gate derives from an order's ID whether it is
	// one of them. [Config.EnsureDefaults] replaces 10,000 by the zero value of the Share.
	Orders int

	Header string `mapstructure:"header" form:"share_header"` // its name, in any case
	Value  string `mapstructure:"value" form:"visible"`       // 1 to 256 visible characters; default any
	// Locks confirms that a rule with settle has a share by header. Its lock excludes only
	// calls that have the header.
	Locks bool `mapstructure:"locks"`
}

// AllOrders is the value of [Share.Orders] that stands for all.
const AllOrders = 10_000

// Enforces reports whether ordergate enforces a rule for any request.
func (m Mode) Enforces() bool { return m.Word != ModeObserve }

// Observes reports whether ordergate only observes a rule for some requests.
func (m Mode) Observes() bool { return m.Word == ModeObserve || m.IsPartial() }

// IsPartial reports whether ordergate enforces a rule for a part of its requests.
func (m Mode) IsPartial() bool { return m.Word == ModeEnforce && m.Share != Share{} }

// String returns the mode as a file has it.
func (m Mode) String() string {
	if m.Share == (Share{}) {
		return m.Word
	}
	return "{" + m.Word + ": " + m.Share.String() + "}"
}

// String returns the share as a file has it.
func (s Share) String() string {
	if s.Header == "" {
		return percent(s.Orders)
	}
	text := "{header: " + s.Header
	if s.Value != "" {
		text += ", value: " + quote(s.Value)
	}
	if s.Locks {
		text += ", locks: true"
	}
	return text + "}"
}

// percent writes hundredths of a percent.
func percent(hundredths int) string {
	return strconv.FormatFloat(float64(hundredths)/100, 'f', -1, 64) + "%"
}

// modeType and shareType are types that a file may have as a single word, or as a mapping.
var modeType, shareType = reflect.TypeFor[Mode](), reflect.TypeFor[Share]()

// modeForms lists the valid forms for a message.
const modeForms = ModeEnforce + ", " + ModeObserve + ", {" + ModeEnforce + ": 10%}, {" + ModeEnforce + ": {header: x-canary}}"

func (r *reader) mode(n *yaml.Node, path string) (any, bool) {
	switch {
	case n.Kind == yaml.MappingNode:
		if s, ok := r.structure(n, modeType, path)[ModeEnforce].(Share); ok {
			return Mode{Word: ModeEnforce, Share: s}, true
		}
		r.rejectMissing(path, []string{ModeEnforce}, "is empty: write one of %s", modeForms)
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && !strings.HasSuffix(n.Value, "%"):
		return Mode{Word: n.Value}, true // the validator checks the word
	default:
		return r.wrong(n, path, "one of "+modeForms)
	}
	return nil, r.discard(path)
}

// share reads a [Share]. It rejects 0%, which is a misunderstanding.
func (r *reader) share(n *yaml.Node, path string) (any, bool) {
	switch {
	case n.Kind == yaml.MappingNode:
		values := r.structure(n, shareType, path)
		header, has := values["header"].(string)
		switch {
		case !has || r.partlyRead[path]:
			r.rejectMissing(path, []string{"header"}, "says not which header: write {header: x-canary}")
		case header == "": // the zero value stands for all requests
			r.report(join(path, "header"), "is empty: give the name of a header")
		default:
			value, _ := values["value"].(string)
			locks, _ := values["locks"].(bool)
			return Share{Header: header, Value: value, Locks: locks}, true
		}
	case n.Kind == yaml.ScalarNode:
		orders, problem := hundredths(n.Value)
		if problem == "" {
			return Share{Orders: orders}, true
		}
		r.report(path, problem)
	default:
		return r.wrong(n, path, "a percentage such as 10%, or {header: x-canary}")
	}
	return nil, r.discard(path)
}

var (
	percentage = lazyregexp.New(`^(?:0|[1-9][0-9]{0,2})(?:\.[0-9]{1,2})?%$`)
	bareNumber = lazyregexp.New(`^[0-9.]+$`)
)

func hundredths(text string) (n int, problem string) {
	switch {
	case bareNumber.MatchString(text):
		return 0, fmt.Sprintf("%s has no unit: write it as a percentage such as 10%%", quote(text))
	case !percentage.MatchString(text):
		return 0, fmt.Sprintf("%s is not a percentage such as 10%% or 0.25%%, with at most two decimals", quote(text))
	}
	whole, decimals, _ := strings.Cut(strings.TrimSuffix(text, "%"), ".")
	n, _ = strconv.Atoi(whole + (decimals + "00")[:2]) // the expression matches digits only
	switch {
	case n == 0:
		return 0, fmt.Sprintf("%s enforces nothing: write mode: %s", text, ModeObserve)
	case n > AllOrders:
		return 0, fmt.Sprintf("%s is out of range: 0.01%% to 100%% are allowed", text)
	}
	return n, ""
}

// ensureDefaults replaces a share of all orders by the word.
func (m *Mode) ensureDefaults(doc *document, rule string) {
	fill(doc.mappings[rule], "mode", &m.Word, ModeEnforce)
	if m.Share == (Share{Orders: AllOrders}) {
		m.Share = Share{}
	}
}

// shareHeaderProblem returns the fault of a header that a share may ask for, or "".
func shareHeaderProblem(name string) string {
	if strings.HasPrefix(name, "x-ordergate-") || name == "host" {
		return quote(name) + " is not passed on to ordergate as the client sent it: choose another header"
	}
	if !headerName.MatchString(name) {
		return quote(name) + " is not the name of a header"
	}
	return ""
}

// mode checks the mode of a rule, and the share of it that is enforced.
func (v *validator) mode(path string, r *Rule) {
	v.choice(path, r.Mode.Word, ModeEnforce, ModeObserve)
	s, at := r.Mode.Share, path+"."+ModeEnforce
	if s == (Share{}) {
		return
	}
	switch {
	case r.Mode.Word == ModeObserve:
		v.reject(path, "%s has a share, which is for %s only: remove one of the two", ModeObserve, ModeEnforce)
		return
	case r.Pass:
		v.reject(path, "%s is not for a rule with pass, which enforces nothing: remove it", r.Mode)
		return
	}
	if s.Header == "" && !v.given(at+".header") {
		between(v, at, s.Orders, 1, AllOrders)
		if !slices.ContainsFunc(r.IDs, ID.hasLocation) && !v.unusable(strings.TrimSuffix(path, ".mode")+".id") {
			v.reject(at, "%s is a share of orders, and requests of this rule name none: write %s or %s", s, ModeEnforce, ModeObserve)
		}
		return
	}
	if s.Orders != 0 {
		v.reject(at, "has a percentage and a header: give exactly one of them")
	}
	once, _ := r.ByKey()
	locks := len(locksOf(r)) > 0 || once != nil // a key has a lock, too
	switch {
	case locks && !s.Locks && !v.unusable(at+".locks"):
		v.reject(at, "%s would enforce an order in one request and not in the next, so that its lock excludes nothing without the header: write a share of orders such as 10%%, or add locks: true if you want that", s)
	case !locks && s.Locks && !v.unusable(join(strings.TrimSuffix(path, ".mode"), "settle")):
		v.reject(at+".locks", "is for a rule that takes a lock: remove it")
	}
}

// sharesAgree rejects rules that take the same lock and enforce different shares. A lock
// protects an order only if all of these rules enforce it. A read lock and a write lock
// with the same key count as one.
func (v *validator) sharesAgree(c *Config) {
	first := make(map[string]int) // by the lock's key
	for i := range c.Rules {
		r := &c.Rules[i]
		for _, name := range locksOf(r) {
			l, known := c.Locks[name]
			if !known {
				continue
			}
			before, taken := first[l.Key]
			if !taken {
				first[l.Key] = i
				continue
			}
			if o := &c.Rules[before]; o.Mode != r.Mode && (o.Mode.IsPartial() || r.Mode.IsPartial()) {
				v.reject(rulePath(i)+".mode", "%s differs from %s of %s, which takes the same lock, %s: an order is enforced by all rules of its lock, or by none",
					r.Mode, o.Mode, quote(o.Name), name)
				break
			}
		}
	}
}

// locksOf returns the names of the locks of orders that a rule takes, and of its limit.
func locksOf(r *Rule) (names []string) {
	if name := r.OrderLock(); name != "" {
		names = append(names, name)
	}
	if r.Settle != nil && r.Settle.Limit != nil {
		names = append(names, r.Settle.Limit.Lock)
	}
	return names
}

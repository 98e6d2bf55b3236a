// Package rules compiles the rules of a configuration into policies of the gate and formats of
// order IDs.
//
// Start with [Policy]. [FormatsOf], [Check] and [Forms] describe the IDs of a filter, with their
// parts.
package rules

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// LocksOf finds a lock by its name, for a rule.
type LocksOf func(name string, r config.Rule) (gate.Locker, error)

// Policy compiles a rule of the file into a policy of the gate, with the filters and locks that
// the rule names. Parts are those of [config.Config.PartOrder], and the secret is that of
// [config.Config.TokenSecret].
func Policy(r config.Rule, parts []string, secret config.Secret, filters map[string]gate.Filter, locks LocksOf) (gate.Policy, error) {
	rule, err := orderRule(r, parts, secret)
	if err != nil {
		return gate.Policy{}, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	p := gate.Policy{Rule: rule, Observe: !r.Mode.Enforces(), Invalid: reply(r.Invalid)}
	if p.Answers, err = answers(r.Answer); err != nil {
		return gate.Policy{}, fmt.Errorf("rule %s: answer: %w", r.Name, err)
	}
	if l := r.Lookup; l != nil {
		p.Lookup = &gate.Lookup{Filter: filters[l.Filter], Absent: reply(l.Absent)}
	}
	if c := r.Create; c != nil {
		p.Create = &gate.Create{Filter: filters[c.Filter], Learn: gate.Learn{Header: c.Learn.ResponseHeader}, Dedup: dedup(c.Dedup, filters[c.Filter])}
		if c.Learn.ResponseJSON != "" {
			p.Create.Learn.JSON = strings.Split(c.Learn.ResponseJSON, ".")
		}
		if c.Learn.Pattern != "" {
			if p.Create.Learn.Capture, err = regexp.Compile(c.Learn.Pattern); err != nil {
				return gate.Policy{}, fmt.Errorf("rule %s: create.learn.pattern: %w", r.Name, err)
			}
		}
		if len(r.IDs) > 0 { // else no answer names an order
			if p.Create.Format, err = format(r.IDs[0]); err != nil {
				return gate.Policy{}, fmt.Errorf("rule %s: %w", r.Name, err)
			}
		}
	}
	if err := addLocks(&p, r, parts, locks); err != nil {
		return gate.Policy{}, err
	}
	if r.Mode.IsPartial() {
		if p.Share, err = share(r, p, parts, locks); err != nil {
			return gate.Policy{}, err
		}
	}
	return p, nil
}

// addLocks adds to a policy what needs locks, in the mode of the rule.
func addLocks(p *gate.Policy, r config.Rule, parts []string, locks LocksOf) (err error) {
	switch c := r.Create; {
	case r.Settle != nil:
		if p.Settle, err = settle(r, parts, locks); err != nil {
			return err
		}
	case c != nil && c.Lock != "":
		p.Settle = &gate.Settle{Busy: reply(c.Busy), Unavailable: reply(c.Unavailable)}
		if p.Settle.Lock, err = locks(c.Lock, r); err != nil {
			return err
		}
	}
	if o, _ := r.ByKey(); o != nil {
		p.Once, err = onceByKey(o, r, locks)
	}
	return err
}

// settle returns the settlement of a rule, with the locks of its mode.
func settle(r config.Rule, parts []string, locks LocksOf) (*gate.Settle, error) {
	s := &gate.Settle{Busy: reply(r.Settle.Busy), Unavailable: reply(r.Settle.Unavailable)}
	var err error
	if s.Lock, err = locks(r.Settle.Lock, r); err != nil {
		return nil, err
	}
	if s.Require, err = require(r.Settle, parts); err != nil {
		return nil, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	if r.Settle.Limit != nil {
		if s.Limit, err = locks(r.Settle.Limit.Lock, r); err != nil {
			return nil, err
		}
	}
	if o, _ := r.ByOrder(); o != nil {
		s.Once = once(o)
		s.Once.Meanwhile, s.Once.For = r.IsBy(), o.For
	}
	return s, nil
}

// share returns the share of a rule. Its other requests have the rule's policy in observe
// mode, with the locks of that mode.
func share(r config.Rule, p gate.Policy, parts []string, locks LocksOf) (*gate.Share, error) {
	s := &gate.Share{Orders: r.Mode.Share.Orders, Header: r.Mode.Share.Header, Value: r.Mode.Share.Value}
	r.Mode = config.Mode{Word: config.ModeObserve}
	p.Observe = true
	if err := addLocks(&p, r, parts, locks); err != nil {
		return nil, err
	}
	s.Others = &p
	return s, nil
}

func reply(r config.Reply) gate.Reply {
	reply := gate.Reply{Status: r.Status, ContentType: r.ContentType, Body: r.Body, RetryAfter: r.RetryAfter}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		reply.Others = append(reply.Others, gate.Header{Name: name, Value: r.Headers[name]})
	}
	return reply
}

var backends = map[string]order.Backend{
	config.BackendStrict: order.Strict,
	config.BackendTomcat: order.Tomcat,
	config.BackendSpring: order.Spring,
	config.BackendPHP:    order.PHP,
}

func queryOf(parameters map[string]config.QueryValues) map[string][]string {
	query := make(map[string][]string, len(parameters))
	for name, values := range parameters {
		query[name] = values
	}
	return query
}

func orderRule(r config.Rule, parts []string, secret config.Secret) (order.Rule, error) {
	rule := order.Rule{
		Name: r.Name, Methods: r.Match.Methods, Path: r.Match.Path, Host: r.Match.Host,
		IgnoreCase:   r.Match.Case == config.CaseInsensitive,
		OtherMethods: r.Match.OtherMethods == config.OtherMethodsPass,
		Pass:         r.Pass,
		UntypedJSON:  r.JSONWithoutType == config.WithoutTypeAccept,
		Backend:      backends[r.Backend],
		Query:        queryOf(r.Match.Query),
		Nameless:     r.Create != nil && r.Create.Dedup != nil,
		// Not nil: nil stands for the default.
		FrontControllers: append([]string{}, r.FrontControllers...),
	}
	for _, c := range r.IDs {
		id, placed, err := orderID(c)
		if err != nil {
			return rule, err
		}
		if placed { // otherwise it only describes the ID in the backend's answer
			rule.IDs = append(rule.IDs, id)
		}
		rule.Optional = c.Optional
	}
	for _, name := range parts {
		id, _, err := orderID(r.Parts[name])
		if err != nil {
			return rule, fmt.Errorf("part %s: %w", name, err)
		}
		rule.Parts = append(rule.Parts, order.Part{Name: name, ID: id})
	}
	if r.IsBy() {
		addTokens(&rule, r.Settle, secret)
	}
	if r.Settle != nil && r.Settle.Limit != nil {
		id, _, err := orderID(r.Settle.Limit.ID)
		if err != nil {
			return rule, fmt.Errorf("limit: %w", err)
		}
		rule.Limit = &id
	}
	return rule, nil
}

var jsonTypes = map[string]order.JSONType{
	config.JSONAny:    order.AnyType,
	config.JSONString: order.OnlyString,
	config.JSONNumber: order.OnlyNumber,
}

func orderID(c config.ID) (id order.ID, placed bool, err error) {
	if id, placed = located(c); placed {
		id.Format, err = format(c)
	}
	return id, placed, err
}

// located returns an ID without its format; false: it is only in the backend's answer.
func located(c config.ID) (id order.ID, placed bool) {
	id.MaxBody, id.List, id.MaxList, id.Separator = c.MaxBody, c.List, c.MaxList, c.Separator
	switch {
	case c.Path != "":
		id.In, id.Name = order.InPath, c.Path
	case c.Query != "":
		id.In, id.Name = order.InQuery, c.Query
	case c.Header != "":
		id.In, id.Name = order.InHeader, c.Header
	case c.Cookie != "":
		id.In, id.Name = order.InCookie, c.Cookie
	case c.Form != "":
		id.In, id.Name = order.InForm, c.Form
	case c.JSON != "":
		id.In, id.Members, id.JSONType = order.InJSON, strings.Split(c.JSON, "."), jsonTypes[c.JSONType]
	default:
		return id, false
	}
	return id, true
}

var cases = map[string]order.Case{config.CaseLower: order.Lower, config.CaseUpper: order.Upper, config.CaseAsIs: order.AsIs}

func format(c config.ID) (order.Format, error) {
	f := order.Format{Min: c.MinLength, Max: c.MaxLength, Largest: c.Max.Digits()}
	switch c.Format {
	case config.FormatUUID:
		f.Kind, f.Case = order.UUID, cases[cmp.Or(c.Case, config.CaseLower)]
	case config.FormatPattern:
		f.Kind, f.Case = order.Pattern, cases[c.Case]
		var err error
		if f.Pattern, err = order.CompilePattern(c.Pattern, f.Case); err != nil {
			return f, err
		}
	case config.FormatTimestamped:
		f.Kind, f.Layout, f.At = order.Timestamped, cmp.Or(c.Time.Epoch, c.Time.Layout), c.Time.At
	case config.FormatSnowflake:
		epoch, err := time.Parse(time.RFC3339, c.Time.Epoch)
		if err != nil {
			return f, fmt.Errorf("reading the epoch: %w", err)
		}
		f.Kind, f.Epoch, f.Shift = order.Snowflake, epoch, c.Time.Shift
	default:
		f.Kind = order.Digits
	}
	return f, nil
}

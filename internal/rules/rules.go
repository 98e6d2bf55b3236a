// Package rules compiles the rules of a configuration into policies of the gate and formats of
// order IDs.
//
// Start with [Policies]. [FormatsOf], [Check] and [Forms] describe the IDs of a filter, with their
// parts.
package rules

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Components are what policies act on.
type Components interface {
	Filter(name string) gate.Filter
	// Lookup returns the filter of a rule's lookups, and what takes the backend's answers to them.
	Lookup(r *config.Rule, answers *gate.Answers) gate.Lookup
	// Confirmer returns what looks up the orders of a rule's creates; nil: nothing does.
	Confirmer(r *config.Rule) (gate.Confirmer, error)
	// Locker returns a lock by its name, for a rule: that of enforced or observed calls.
	// [config.OnceLock] is that of the rule's keys.
	Locker(ctx context.Context, name string, r *config.Rule, observe bool) (gate.Locker, error)
	// Conditions returns the conditions of a rule's settlements; nil: they are not checked.
	Conditions(r *config.Rule, list []condition.Condition) gate.Conditions
}

// Policies compiles the rules of a configuration into policies of the gate.
func Policies(ctx context.Context, c *config.Config, with Components) ([]gate.Policy, error) {
	policies := make([]gate.Policy, len(c.Rules))
	for i := range c.Rules {
		var err error
		if policies[i], err = policy(ctx, c, &c.Rules[i], with); err != nil {
			return nil, err
		}
	}
	return policies, nil
}

func policy(ctx context.Context, c *config.Config, r *config.Rule, with Components) (p gate.Policy, err error) {
	p = gate.Policy{Observe: !r.Mode.Enforces(), Invalid: reply(r.Invalid)}
	if p.Rule, err = orderRule(r, c.TokenSecret(r)); err != nil {
		return p, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	if p.Answers, err = answers(r.Answer); err != nil {
		return p, fmt.Errorf("rule %s: answer: %w", r.Name, err)
	}
	if r.Lookup != nil {
		l := with.Lookup(r, p.Answers)
		l.Absent = reply(r.Lookup.Absent)
		p.Lookup = &l
	}
	if p.Create, err = create(r, with); err != nil {
		return p, err
	}
	if p.Settle, err = settle(r, with); err != nil {
		return p, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	if o, _ := r.ByKey(); o != nil {
		p.Once = onceByKey(o)
	}
	plain := p
	if err := addLocks(ctx, &p, r, with); err != nil || !r.Mode.IsPartial() {
		return p, err
	}
	p.Share = &gate.Share{Orders: r.Mode.Share.Orders, Header: r.Mode.Share.Header, Value: r.Mode.Share.Value, Others: &plain}
	plain.Observe = true
	return p, addLocks(ctx, &plain, r, with)
}

// create compiles the create of a rule; nil: it has none.
func create(r *config.Rule, with Components) (*gate.Create, error) {
	c := r.Create
	if c == nil {
		return nil, nil
	}
	compiled := &gate.Create{Filter: with.Filter(c.Filter), Learn: gate.Learn{Header: c.Learn.ResponseHeader}}
	var err error
	if compiled.Dedup, err = dedup(r, with); err != nil {
		return nil, err
	}
	if c.Learn.ResponseJSON != "" {
		compiled.Learn.JSON = strings.Split(c.Learn.ResponseJSON, ".")
	}
	if c.Learn.Pattern != "" {
		if compiled.Learn.Capture, err = regexp.Compile(c.Learn.Pattern); err != nil {
			return nil, fmt.Errorf("rule %s: create.learn.pattern: %w", r.Name, err)
		}
	}
	if len(r.IDs) > 0 { // else no answer names an order
		if compiled.Format, err = format(r.IDs[0]); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
	}
	return compiled, nil
}

// settle compiles the settlement of a rule, or that of its creates, without the locks; nil: it has
// none.
func settle(r *config.Rule, with Components) (s *gate.Settle, err error) {
	switch {
	case r.Settle != nil:
		s = &gate.Settle{Busy: reply(r.Settle.Busy), Unavailable: reply(r.Settle.Unavailable)}
		if s.Require, err = require(r, with); err != nil {
			return nil, err
		}
		if o, _ := r.ByOrder(); o != nil {
			s.Once = once(o)
			s.Once.Meanwhile, s.Once.For = r.IsBy(), o.For
		}
	case r.OrderLock() != "":
		s = &gate.Settle{Busy: reply(r.Create.Busy), Unavailable: reply(r.Create.Unavailable)}
	}
	return s, nil
}

// addLocks gives a policy the locks of its mode. It leaves alone what p shares with its copies.
func addLocks(ctx context.Context, p *gate.Policy, r *config.Rule, with Components) (err error) {
	if p.Settle != nil {
		s := *p.Settle
		p.Settle = &s
		if s.Lock, err = with.Locker(ctx, r.OrderLock(), r, p.Observe); err != nil {
			return err
		}
		if r.Settle != nil && r.Settle.Limit != nil {
			if s.Limit, err = with.Locker(ctx, r.Settle.Limit.Lock, r, p.Observe); err != nil {
				return err
			}
		}
	}
	if p.Once != nil {
		once, key := *p.Once, *p.Once.Key
		p.Once, once.Key = &once, &key
		key.Lock, err = with.Locker(ctx, config.OnceLock, r, p.Observe)
	}
	return err
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

func orderRule(r *config.Rule, secret config.Secret) (order.Rule, error) {
	rule := order.Rule{
		Name: r.Name, Methods: r.Match.Methods, Path: r.Match.Path, Host: r.Match.Host,
		IgnoreCase:   r.Match.Case == config.CaseInsensitive,
		OtherMethods: r.Match.OtherMethods == config.OtherMethodsPass,
		Pass:         r.Pass,
		UntypedJSON:  r.JSONWithoutType == config.WithoutTypeAccept,
		Backend:      backends[r.Backend],
		Query:        make(map[string][]string, len(r.Match.Query)),
		Nameless:     r.Create != nil && r.Create.Dedup != nil,
		// Not nil: nil stands for the default.
		FrontControllers: append([]string{}, r.FrontControllers...),
	}
	for name, values := range r.Match.Query {
		rule.Query[name] = values
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
	for _, name := range r.PartNames() {
		id, _, err := orderID(r.Parts[name])
		if err != nil {
			return rule, fmt.Errorf("part %s: %w", name, err)
		}
		rule.Parts = append(rule.Parts, order.Part{Name: name, ID: id})
	}
	if r.IsBy() { // a hash of each token stands for an order. Those behind the first are parts, so a request has to have all of them
		for i, place := range r.Settle.By {
			id, _ := located(place.ID())
			id.Format = order.Format{Kind: order.Hashed, Key: string(secret), AsHeader: id.In == order.InHeader}
			if i == 0 {
				rule.IDs = append(rule.IDs, id)
			} else {
				rule.Parts = append(rule.Parts, order.Part{Name: "by" + strconv.Itoa(i), ID: id})
			}
		}
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

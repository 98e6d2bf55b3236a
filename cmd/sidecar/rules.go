package main

import (
	"fmt"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// policy turns a rule of the file into one of the gate, with the filters and
// locks that it names.
func policy(r config.Rule, filters map[string]gate.Filter, lock gate.Locker) (gate.Policy, error) {
	id, err := orderID(r.ID)
	if err != nil {
		return gate.Policy{}, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	p := gate.Policy{
		Rule: order.Rule{
			Name: r.Name, Methods: r.Match.Methods, Path: r.Match.Path, Host: r.Match.Host, ID: id,
		},
		Observe: r.Mode == config.ModeObserve,
		Invalid: reply(r.Invalid),
	}
	if l := r.Lookup; l != nil {
		p.Lookup = &gate.Lookup{Filter: filters[l.Filter], Absent: reply(l.Absent)}
	}
	if c := r.Create; c != nil {
		p.Create = &gate.Create{Filter: filters[c.Filter], Learn: gate.Learn{Header: c.Learn.ResponseHeader}}
		if c.Learn.ResponseJSON != "" {
			p.Create.Learn.JSON = strings.Split(c.Learn.ResponseJSON, ".")
		}
	}
	if s := r.Settle; s != nil {
		p.Settle = &gate.Settle{Lock: lock, Busy: reply(s.Busy), Unavailable: reply(s.Unavailable)}
	}
	return p, nil
}

func reply(r config.Reply) gate.Reply {
	return gate.Reply{Status: r.Status, Body: r.Body, RetryAfter: r.RetryAfter}
}

func orderID(c config.ID) (order.ID, error) {
	id := order.ID{
		Optional: c.Optional,
		Format:   order.Format{Min: c.MinLength, Max: c.MaxLength},
	}
	switch {
	case c.Path != "":
		id.In, id.Name = order.InPath, c.Path
	case c.Query != "":
		id.In, id.Name = order.InQuery, c.Query
	case c.Header != "":
		id.In, id.Name = order.InHeader, c.Header
	}
	switch c.Format {
	case config.FormatUUID:
		id.Format.Kind = order.UUID
	case config.FormatPattern:
		id.Format.Kind = order.Pattern
		var err error
		if id.Format.Pattern, err = order.CompilePattern(c.Pattern); err != nil {
			return id, err
		}
	default:
		id.Format.Kind = order.Digits
	}
	return id, nil
}

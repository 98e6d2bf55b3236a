package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/kryo"
)

// require returns what a settlement requires; nil: nothing.
func require(r *config.Rule, with Components) (*gate.Require, error) {
	if len(r.Settle.Require) == 0 {
		return nil, nil
	}
	list, headers, err := Conditions(r)
	if err != nil {
		return nil, err
	}
	required := &gate.Require{Conditions: with.Conditions(r, list), Headers: headers}
	for _, c := range r.Settle.Require {
		required.Otherwise = append(required.Otherwise, reply(c.Otherwise))
	}
	return required, nil
}

// Conditions compiles the conditions of a rule that settles. It also returns the names of the headers
// that the conditions use, in the order in which they take their values.
func Conditions(r *config.Rule) (list []condition.Condition, headers []string, err error) {
	parts := r.PartNames()
	template := func(text string) (t condition.Template) {
		list, problem := config.Template(text, parts)
		if problem != "" && err == nil {
			err = fmt.Errorf("require: %q %s", text, problem)
		}
		for _, p := range list {
			at := 0
			if p.Header != "" {
				if !slices.Contains(headers, p.Header) {
					headers = append(headers, p.Header)
				}
				at = slices.Index(headers, p.Header) + 1
			}
			compiled := condition.Part{Text: p.Text, ID: p.ID || p.Part != "", Header: at, Name: p.Header + p.Part}
			switch {
			case p.ID:
				compiled.Index = len(parts)
			case p.Part != "":
				compiled.Index = slices.Index(parts, p.Part)
			}
			t = append(t, compiled)
		}
		return t
	}
	names := config.ConditionNames(r.Settle.Require)
	for i := range r.Settle.Require {
		c := &r.Settle.Require[i]
		compiled := condition.Condition{Name: names[i], Key: template(c.Key())}
		switch {
		case c.Latch != "":
			compiled.Kind = condition.Latch
		case c.Exists != "":
			compiled.Kind = condition.Exists
		case c.Missing != "":
			compiled.Kind = condition.Missing
		case c.Value != nil:
			compiled.Kind, compiled.Value = condition.Is, c.Value.Is
			if c.Value.IsNot != "" {
				compiled.Kind, compiled.Value = condition.IsNot, c.Value.IsNot
			}
			if encode := encoder(c.Value.Codec); encode != nil {
				compiled.Value = encode(compiled.Value)
			}
		case c.Geo != nil:
			compiled.Kind, compiled.Meters, compiled.Encode = condition.Near, c.Geo.Meters(), encoder(c.Geo.Codec)
			compiled.Member, compiled.To = template(c.Geo.Member), template(c.Geo.To)
		case c.Time != nil:
			compiled.Kind = condition.Time
			if compiled.Window, err = window(c.Time); err != nil {
				return nil, nil, fmt.Errorf("require: %w", err)
			}
		}
		list = append(list, compiled)
	}
	return list, headers, err
}

// encoder returns the function that writes a text as a Java service with this codec does; nil:
// as it is.
func encoder(codec string) func(string) string {
	if codec != config.CodecDefault {
		return nil
	}
	return func(text string) string { return string(kryo.String(text)) }
}

func window(c *config.TimeCondition) (w condition.Window, err error) {
	w.From, _ = config.MinuteOf(c.From) // package config has checked them
	w.To, _ = config.MinuteOf(c.To)
	for _, entry := range c.Days {
		days, _ := config.DaysOf(entry)
		for _, day := range days {
			w.Days[day] = true
		}
	}
	w.Zone, err = time.LoadLocation(c.Zone)
	return w, err
}

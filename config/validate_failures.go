package config

import "slices"

// failuresStored returns a warning for each rule that stores answers of an API with JSON by their
// status alone: many such APIs answer 200, with a code in the body, to a call that failed.
func (d *document) failuresStored(c *Config) []Violation {
	before := len(d.violations)
	for i := range c.Rules {
		r := &c.Rules[i]
		json := r.Create != nil && r.Create.Learn.ResponseJSON != "" || slices.ContainsFunc(r.IDs, func(id ID) bool { return id.JSON != "" })
		if a := r.Answer; !json || a != nil && len(a.Failed)+len(a.Done) > 0 {
			continue
		}
		for _, of := range []func() (*Once, string){r.ByOrder, r.ByKey} {
			if o, at := of(); o != nil && len(o.Forget) == 0 {
				d.report(join(rulePath(i), at), "stores each answer with 2xx, and gives it again, also one whose JSON says that the call failed: "+
					"say how a success looks, such as answer: {done: [{json: {resultCode: 200}}]}, or answer: {done: [{status: 2xx}]} if the status tells")
			}
		}
	}
	return d.warningsSince(before)
}

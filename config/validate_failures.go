package config

import "slices"

// failuresStored returns a warning for each rule that stores answers of an API with JSON by their
// status alone: many such APIs answer 200, with a code in the body, to a call that failed. Under
// backend php it returns one for each that stores only what its JSON calls done.
func (d *document) failuresStored(c *Config) []Violation {
	before := len(d.violations)
	for i := range c.Rules {
		r := &c.Rules[i]
		advice := ""
		switch a := r.Answer; {
		case a != nil && r.Backend == BackendPHP && len(a.Done) > 0 && !slices.ContainsFunc(a.Done, func(c AnswerCondition) bool { return len(c.JSON) == 0 }):
			advice = "stores no answer in which PHP has printed a notice before the JSON, so that a repeated call runs again: " +
				"leave done out of answer, or name a status or header there"
		case a != nil && len(a.Failed)+len(a.Done) > 0:
		case r.Create != nil && r.Create.Learn.ResponseJSON != "" || slices.ContainsFunc(r.IDs, func(id ID) bool { return id.JSON != "" }):
			advice = "stores each answer with 2xx, and gives it again, also one whose JSON says that the call failed: " +
				"say how a success looks, such as answer: {done: [{json: {resultCode: 200}}]}, or answer: {done: [{status: 2xx}]} if the status tells"
		}
		for _, of := range []func() (*Once, string){r.ByOrder, r.ByKey} {
			if o, at := of(); o != nil && len(o.Forget) == 0 && advice != "" {
				d.report(join(rulePath(i), at), advice)
			}
		}
	}
	return d.warningsSince(before)
}

package config

import (
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// grpcMethod matches the path of a gRPC method: /package.Service/Method. It leaves out services
// without a package, whose paths other services may have too.
var grpcMethod = lazyregexp.New(`^/[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\.[A-Z]\w*/[A-Z]\w*$`)

// unreadBodies returns a warning for each key that reads a body, in rules whose path looks like
// that of a gRPC method. The rules may be right: Connect has the same paths, with JSON.
func (d *document) unreadBodies(c *Config) {
	const message = "reads a body, and the path looks like a gRPC method's: the messages of gRPC are protobuf, which ordergate does not read. "
	for i := range c.Rules {
		r := &c.Rules[i]
		if !slices.Contains(r.Match.Methods, "POST") || !grpcMethod.MatchString(r.Match.Path) {
			continue
		}
		for _, e := range d.entries(rulePath(i), r) {
			for _, body := range []struct{ key, name string }{{"json", e.id.JSON}, {"form", e.id.Form}} {
				if body.name != "" {
					d.report(join(e.path, body.key), message+"Have clients send the ID as metadata, and read it with header")
				}
			}
		}
		if r.Create != nil && r.Create.Learn.ResponseJSON != "" {
			d.report(rulePath(i)+".create.learn.response_json", message+"Have the backend send the ID as initial metadata, and read it with response_header")
		}
	}
}

// literalKeys returns a warning for each {name} in a lock's key that is no part. The key may be
// right: a hash tag, or the key of another service.
func (d *document) literalKeys(c *Config) {
	for _, lock := range sortedKeys(c.Locks) {
		for _, name := range d.literalNames(c, lock) {
			d.report(join("locks", lock)+".key", "has {"+name+"} in it, and no rule with this lock has such a part: it is the same text for all orders")
		}
	}
}

// lockTimes returns a warning for each hold in the file that is longer than two thirds of its lease,
// and for each keep_fence: 0s. Such a hold says that the backend may take so long, and a lease, which
// is renewed at a third, may have no more left when ordergate is killed. The default hold says nothing.
func (d *document) lockTimes(c *Config) {
	check := func(path string, hold, lease time.Duration) {
		if d.given(path) && hold > lease/3*2 {
			d.report(path, "is longer than two thirds of lease "+number(lease)+": if ordergate is killed, the lock may end before the backend has. Set lease: "+
				number((hold+hold/2).Round(time.Second))+", or a shorter hold")
		}
	}
	for _, name := range sortedKeys(c.Locks) {
		l := c.Locks[name]
		check(join("locks", name)+".on_unknown_outcome.hold", l.OnUnknownOutcome.Hold, l.Lease)
		if at := join("locks", name) + ".keep_fence"; d.given(at) && l.KeepFence == 0 {
			d.report(at, "keeps 104 bytes in Redis for ever for each order that a client settles, also for made-up ones while the filter is unknown. Only Java's getFencedLock and getSemaphore need it: else remove it")
		}
	}
	for i := range c.Rules {
		if o, at := c.Rules[i].ByKey(); o != nil {
			check(join(rulePath(i), at)+".hold", o.Hold, o.Lease)
		}
	}
}

// failuresStored returns a warning for each rule that stores answers of an API with JSON by their
// status alone: many such APIs answer 200, with a code in the body, to a call that failed. Under
// backend php it returns one for each that stores only what its JSON calls done.
func (d *document) failuresStored(c *Config) {
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
}

// warnings returns what the checks report, sorted by path. It is no violation.
func (d *document) warnings(c *Config, checks ...func(*Config)) []Violation {
	before := len(d.violations)
	for _, check := range checks {
		check(c)
	}
	found := slices.Clone(d.violations[before:])
	d.violations = d.violations[:before]
	slices.SortStableFunc(found, func(a, b Violation) int { return strings.Compare(a.Path, b.Path) })
	return found
}

// IsGRPC reports whether the rule's path looks like that of a gRPC method.
func (r *Rule) IsGRPC() bool { return grpcMethod.MatchString(r.Match.Path) }

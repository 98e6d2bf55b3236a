package config

import (
	"regexp"
	"slices"
	"strings"
)

// grpcMethod matches the path of a gRPC method: /package.Service/Method. It leaves out services
// without a package, whose paths other services may have too.
var grpcMethod = regexp.MustCompile(`^/[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\.[A-Z]\w*/[A-Z]\w*$`)

// unreadBodies returns a warning for each key that reads a body, in rules whose path looks like
// that of a gRPC method. The rules may be right: Connect has the same paths, with JSON.
func (d *document) unreadBodies(c *Config) []Violation {
	const message = "reads a body, and the path looks like a gRPC method's: the messages of gRPC are protobuf, which ordergate does not read. "
	before := len(d.violations)
	for i, r := range c.Rules {
		if !slices.Contains(r.Match.Methods, "POST") || !grpcMethod.MatchString(r.Match.Path) {
			continue
		}
		for _, e := range d.entries(rulePath(i), &r) {
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
	return d.warningsSince(before)
}

// warningsSince takes the violations behind the first ones, and returns them sorted by path.
func (d *document) warningsSince(before int) []Violation {
	warnings := slices.Clone(d.violations[before:])
	d.violations = d.violations[:before]
	slices.SortStableFunc(warnings, func(a, b Violation) int { return strings.Compare(a.Path, b.Path) })
	return warnings
}

// IsGRPC reports whether the rule's path looks like that of a gRPC method.
func (r *Rule) IsGRPC() bool { return grpcMethod.MatchString(r.Match.Path) }

package order

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Rule selects requests and says where they name their order.
type Rule struct {
	Name    string
	Methods []string // as on the wire; at least one
	Path    string   // "/orders/{id}": literal segments and {names}
	Host    string   // without a port, any letter case; empty matches every host
	ID      ID
}

// Place is where in a request an order ID stands.
type Place int8

// The places.
const (
	Nowhere Place = iota // only the answer has it
	InPath
	InQuery
	InHeader
)

// ID says where an order ID stands and what it looks like.
type ID struct {
	In       Place
	Name     string // of the path segment, the query parameter or the header (lower case)
	Optional bool   // a request without one is Anonymous rather than Invalid
	Format   Format
}

// segment is one part of a path template.
type segment struct {
	text  string // the literal, or the name of the variable
	isVar bool
}

// parseTemplate reads a path template.
func parseTemplate(path string) ([]segment, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("path %q does not start with /", path)
	}
	if strings.ContainsAny(path, "?#") {
		return nil, fmt.Errorf("path %q has a query or a fragment", path)
	}
	var segments []segment
	for text := range strings.SplitSeq(path[1:], "/") {
		name, isVar := strings.CutPrefix(text, "{")
		if isVar {
			var closed bool
			if name, closed = strings.CutSuffix(name, "}"); !closed || name == "" {
				return nil, fmt.Errorf("path %q: segment %q is not {name}", path, text)
			}
			text = name
		}
		if strings.ContainsAny(text, "{}") {
			return nil, fmt.Errorf("path %q: a {name} has to be a whole segment", path)
		}
		segments = append(segments, segment{text: text, isVar: isVar})
	}
	return segments, nil
}

// idSegment returns which segment of the template the ID is, or -1 when the ID
// does not stand in the path.
func (r *Rule) idSegment(segments []segment) (int, error) {
	if r.ID.In != InPath {
		return -1, nil
	}
	i := slices.Index(segments, segment{text: r.ID.Name, isVar: true})
	if i < 0 {
		return 0, fmt.Errorf("path %q has no segment {%s}", r.Path, r.ID.Name)
	}
	return i, nil
}

func (r *Rule) check() error {
	if len(r.Methods) == 0 {
		return errors.New("no methods")
	}
	if r.ID.In != Nowhere && r.ID.Name == "" {
		return errors.New("the ID has no name")
	}
	return r.ID.Format.check()
}

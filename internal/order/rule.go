package order

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Rule selects requests, and defines where they name their order.
type Rule struct {
	Name    string
	Methods []string // as on the wire; at least one. GET covers HEAD
	Path    string   // "/orders/{id}": literal segments and {names}

	// Query lists parameters that the query must have, by name, each with the values of which
	// it has one, as written. Names consist of letters, digits, _ and -; values of visible ASCII
	// without & ; and #, with a letter or digit. A value that a router may take for one of these,
	// and another spelling of a name, are Ambiguous, also in a form or a cookie.
	Query map[string][]string
	// FrontControllers are paths at which a PHP backend chooses by parameters what it runs;
	// nil: /index.php and /. A request to one of them that names an order, without matching
	// a rule, is Ambiguous.
	FrontControllers []string

	Host         string // without a port, any letter case; empty matches every host
	IgnoreCase   bool   // of literal segments: the backend does
	OtherMethods bool   // requests under other methods pass; otherwise they are Ambiguous
	Pass         bool   // the rule exempts what it matches: the result is Unruled
	Backend      Backend
	UntypedJSON  bool // a body without a Content-Type is read as JSON, if an ID is in JSON; otherwise it is Ambiguous
	IDs          []ID // tried in order; all that are present must agree. Empty: only the answer has the ID
	Optional     bool // a request without an ID is Anonymous rather than Invalid; without Nameless an empty one is none
	// Nameless has an Anonymous request name no order by any rule's locations either. Otherwise
	// it is Ambiguous: a backend that merges its input finds the order there.
	Nameless bool

	// Parts are what the order's ID is unique within. The match's IDs are composed of them, in
	// this order, and of the order's ID.
	Parts []Part

	// Limit is the ID of something other than the order, for example of a merchant, that
	// the request also contains; nil: none. It is read as strictly as the order's ID.
	Limit *ID
}

// Location is the part of a request that holds an order ID.
type Location int8

// The locations.
const (
	InPath Location = iota
	InQuery
	InHeader
	InCookie
	InForm // application/x-www-form-urlencoded; multipart is refused
	InJSON
)

// ID defines where an order ID is and what it looks like.
type ID struct {
	In       Location
	Name     string   // of the path segment, parameter, header (lower case), cookie or form field
	Members  []string // InJSON: the path of member names
	JSONType JSONType
	List     bool // InJSON: an array of IDs, each of them an order
	MaxList  int  // the largest number of IDs
	// Separator is between the IDs of a list that is one text. "": the list is an array.
	Separator string
	MaxBody   int // InForm, InJSON: bytes
	Format    Format
}

// JSONType restricts how an ID is written in JSON.
type JSONType int8

// The types. 42 and "42" are one order.
const (
	AnyType JSONType = iota
	OnlyString
	OnlyNumber
)

func (id *ID) inBody() bool { return id.In == InForm || id.In == InJSON }

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

// compiled is a rule prepared for matching.
type compiled struct {
	table     *Table     // the table of the rule
	Rule                 // IDs continues with the parts, and ends with the limit's ID
	orders    int        // number of the order's own IDs in IDs
	limit     int        // index of the limit's ID in IDs, or -1
	segments  []int      // by ID: index of its segment in the path, or -1
	aliases   []string   // folded names that a parameter or cookie must not have in another location
	above     []string   // by ID: folded name of the JSON member that it is below, or ""
	foreign   []string   // folded names of orders in other rules: a front controller may merge all names
	headers   []string   // in which other rules read an order's ID, for a rule with Nameless
	members   [][]string // folded paths of JSON members that name an order, for a rule with Nameless
	partNames []string   // folded names of parts in other rules, for a rule with parts
	nested    []string   // folded names of JSON members that have an ID below them
	mounts    []*mount   // whose folder begins the path
	selectors []selector // Query, in the order of the names
	// nestedPaths are folded paths of JSON members below others, by which other rules read.
	nestedPaths [][]string

	inBody   bool // at least one ID is in the body
	ownBody  bool // at least one ID of the order, or a part, is
	inParams bool // at least one ID is in the query, a form or a cookie
	maxBody  int

	// firstBytes marks the first bytes of JSON member names that matter. Such a name leads
	// to an ID, or a backend may take it for one. Most letters are not marked.
	firstBytes [256]bool
}

func compile(r Rule) (compiled, []segment, error) {
	if len(r.Methods) == 0 {
		return compiled{}, nil, errors.New("no methods")
	}
	segments, err := parseTemplate(r.Path)
	if err != nil {
		return compiled{}, nil, err
	}
	c := compiled{Rule: r, orders: len(r.IDs), limit: -1}
	if c.selectors, err = r.compileQuery(); err != nil {
		return compiled{}, nil, err
	}
	if n := len(r.IDs) + len(r.Parts); n > maxIDs {
		return compiled{}, nil, fmt.Errorf("%d places of an ID and its parts: at most %d are allowed", n, maxIDs)
	}
	if err := r.checkParts(); err != nil {
		return compiled{}, nil, err
	}
	c.IDs = slices.Clip(r.IDs)
	for _, p := range r.Parts {
		c.IDs = append(c.IDs, p.ID)
	}
	if r.Limit != nil {
		if err := r.checkLimit(); err != nil {
			return compiled{}, nil, err
		}
		c.limit = len(c.IDs)
		c.IDs = append(c.IDs, *r.Limit)
	}
	lists := 0
	for i := range c.IDs {
		id := &c.IDs[i]
		if err := id.check(); err != nil {
			return compiled{}, nil, err
		}
		if id.List {
			if lists++; lists > 1 {
				return compiled{}, nil, errors.New("two lists of IDs")
			}
		}
		index := -1
		if id.In == InPath {
			if index = slices.Index(segments, segment{text: id.Name, isVar: true}); index < 0 {
				return compiled{}, nil, fmt.Errorf("path %q has no segment {%s}", r.Path, id.Name)
			}
		}
		c.segments = append(c.segments, index)
		c.aliases = append(c.aliases, id.alias())
		c.above = append(c.above, id.above())
		if id.inBody() {
			c.inBody = true
			c.ownBody = c.ownBody || i != c.limit
			c.maxBody = max(c.maxBody, id.MaxBody)
		}
		c.markFirstBytes(id, c.aliases[i])
		c.inParams = c.inParams || id.In == InQuery || id.In == InForm || id.In == InCookie
		if slices.ContainsFunc(c.selectors, func(s selector) bool { return s.folded == c.aliases[i] }) {
			return compiled{}, nil, fmt.Errorf("the parameter that the rule matches by may be taken for the ID %s", id.Name)
		}
	}
	return c, segments, nil
}

// mayNameScript reports whether the last segment of the rule's path is a {name} that may be
// index.php. That of an ID is not, unless the ID's format accepts it.
func (c *compiled) mayNameScript(last segment) bool {
	i := slices.IndexFunc(c.IDs, func(id ID) bool { return id.In == InPath && id.Name == last.text })
	if !last.isVar || i < 0 {
		return last.isVar
	}
	_, ok := c.IDs[i].Format.Canonical(indexScript[1:])
	return ok
}

// isOrder reports whether an ID of the rule is an order's, not a part's or the limit's.
func (c *compiled) isOrder(i int) bool { return i < c.orders }

// checkLimit refuses a limit if a backend may take its ID for the order's: the two need not
// agree.
func (r *Rule) checkLimit() error {
	switch {
	case r.Limit.List:
		return errors.New("a limit is for one ID, not for a list")
	case r.Limit.check() != nil:
		return fmt.Errorf("limit: %w", r.Limit.check())
	}
	for i := range r.IDs {
		if r.mayConfuse(&r.IDs[i], r.Limit) {
			return errors.New("the limit's ID may be taken for the order's: their names are alike")
		}
	}
	for i := range r.Parts {
		if r.mayConfuse(&r.Parts[i].ID, r.Limit) {
			return fmt.Errorf("the limit's ID may be taken for part %s: their names are alike", r.Parts[i].Name)
		}
	}
	return nil
}

// alias returns the folded name of a valid ID.
func (id *ID) alias() string {
	if id.In == InJSON {
		return foldName(id.Members[len(id.Members)-1])
	}
	return foldName(id.Name)
}

// markFirstBytes marks the first letters of an ID's names.
func (c *compiled) markFirstBytes(id *ID, alias string) {
	for b := range 256 {
		if lower := b | 0x20; lower < 'a' || lower > 'z' {
			c.firstBytes[b] = true
		}
	}
	for _, name := range append([]string{alias}, id.Members...) {
		if name == "" {
			continue
		}
		c.firstBytes[name[0]|0x20] = true
		c.firstBytes[name[0]&^0x20] = true
		if folded := foldName(name); folded != "" {
			c.firstBytes[folded[0]|0x20] = true
			c.firstBytes[folded[0]&^0x20] = true
		}
	}
}

func (id *ID) check() error {
	switch {
	case id.In == InJSON && len(id.Members) == 0, id.In != InJSON && id.Name == "":
		return errors.New("the ID has no name")
	case id.List && id.In != InJSON:
		return errors.New("a list of IDs stands in JSON only")
	case id.List && id.MaxList < 1:
		return errors.New("a list of no IDs")
	case id.inBody() && id.MaxBody < 1:
		return errors.New("an ID in a body of no bytes")
	}
	return id.Format.check()
}

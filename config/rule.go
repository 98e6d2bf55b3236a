package config

import "time"

// Backends: how the service behind the gate reads a request. The gate refuses a request in
// which the backend may find another order.
const (
	BackendStrict = "strict" // refuses what any of the others may read differently
	BackendTomcat = "tomcat"
	BackendSpring = "spring"
	BackendPHP    = "php"
)

// How a rule that reads JSON treats a body without a Content-Type.
const (
	WithoutTypeAccept = "accept" // the gate reads it as JSON
	WithoutTypeRefuse = "refuse"
)

// Rule is what to do with the requests that match it.
type Rule struct {
	// Name is unlike that of other rules: [a-z0-9][a-z0-9_-]{0,62}.
	Name string `mapstructure:"name" form:"name" need:"a name of its own, such as order-lookup" change:"answers"`
	// Match selects the requests.
	Match Match `mapstructure:"match"`
	// Backend is how the service reads a request; default that of the file.
	Backend string `mapstructure:"backend" oneof:"strict tomcat spring php"`
	// FrontControllers are the paths at which a backend of kind strict or php chooses its
	// action by parameters. The gate refuses a request there that names an order and that no
	// rule matches. Default those of the file.
	FrontControllers []string `mapstructure:"front_controllers" form:"script"`

	// JSONWithoutType is for a body without a Content-Type, in rules that read an ID from
	// JSON. Default refuse for backend strict, since some (Rack, CGI.pm) read such a body as
	// a form; otherwise accept.
	JSONWithoutType string `mapstructure:"json_without_type" oneof:"accept refuse"`

	Pass bool `mapstructure:"pass"`                                                                                    // exempts matching requests; excludes id, parts, invalid, lookup, create, settle and once
	IDs  []ID `mapstructure:"id" items:"8 entries" empty:"name the ID's location, or remove it in a rule with create"` // where the order ID is: at most 8 entries, in different locations; a mapping in the file is a list of one
	// Parts are what the ID is unique within, such as a tenant, by name: at most 4, and at most 8
	// with the entries of id. Each request must have all of them. They are those in the key of
	// the rule's lock, and those of its filter.
	Parts   map[string]ID `mapstructure:"parts" items:"4 parts" empty:"name a part, such as {tenant: {header: x-tenant}}, or remove it" change:"answers"`
	names   []string      // see PartNames
	Answer  *Answer       `mapstructure:"answer"`  // what the backend's answers mean; default that of the file
	Invalid Reply         `mapstructure:"invalid"` // the answer to a malformed ID; default 400; with an empty body, the gate describes the fault
	// Lookup refuses requests for orders that certainly do not exist.
	Lookup *Lookup `mapstructure:"lookup"`
	Create *Create `mapstructure:"create"` // makes an order, whose ID is learned from the answer; excludes settle and lookup
	Settle *Settle `mapstructure:"settle"` // holds a lock around the call
	Once   *Once   `mapstructure:"once"`   // answers that are stored by a key in the request, or of the order that settle names
	Mode   Mode    `mapstructure:"mode"`   // enforce, observe (decide and count, change nothing), {enforce: 10%} or {enforce: {header: x-canary}}; default enforce
}

// CaseInsensitive is for paths whose literal segments are compared in any case.
const CaseInsensitive = "insensitive"

// How the gate treats a request to a rule's path whose method no rule names.
const (
	OtherMethodsRefuse = "refuse"
	OtherMethodsPass   = "pass"
)

// QueryValues are values of a parameter. A file may have one of them in place of a list.
type QueryValues []string

// Match selects requests. All of its conditions must hold.
type Match struct {
	Methods []string `mapstructure:"methods" form:"method" twice:"name a method once" need:"at least one method, such as [GET, HEAD]"` // methods in upper case, at least one
	Path    string   `mapstructure:"path" form:"template" need:"a template such as \"/orders/{id}\""`                                  // a template, such as "/orders/{id}": segments of [A-Za-z0-9._~-] and {names}, no query; with a slash at the end where the backend has one
	// Query maps parameters that the query must have to their values, one of which it has as
	// written. Names have 1 to 128 letters, digits, _ and -; values 1 to 256 visible ASCII
	// characters but & ; and #, with a letter or digit among them.
	Query map[string]QueryValues `mapstructure:"query" empty:"give a parameter and its value, or remove it"`
	// Case is how the literal segments are compared; insensitive for a backend that takes /ORDERS for
	// /orders.
	Case string `mapstructure:"case" default:"sensitive" oneof:"sensitive insensitive"`
	// Host is the exact :authority without the port, in lower case; default any.
	Host string `mapstructure:"host" form:"authority"`
	// OtherMethods decides about methods that no rule names for the path; default refuse in
	// a rule with settle or a required key, pass in others.
	OtherMethods string `mapstructure:"other_methods" oneof:"refuse pass"`
}

// ID formats.
const (
	FormatDigits      = "digits"
	FormatUUID        = "uuid"
	FormatTimestamped = "timestamped" // digits, some of which are a date
	FormatSnowflake   = "snowflake"   // a number, the upper bits of which count milliseconds
	FormatPattern     = "pattern"
)

// The case of letters in the canonical form of an ID.
const (
	CaseAsIs  = "as_is"
	CaseLower = "lower"
	CaseUpper = "upper"
)

// How an ID is written in JSON.
const (
	JSONAny    = "any"
	JSONString = "string"
	JSONNumber = "number"
)

// ID is the location of the order ID in a request, and its format. Exactly one of the
// locations Path, Query, Header, JSON, Form and Cookie is set.
//
// The only entry of a create rule may have no location. It then only has the format of the ID
// in the answer. [Config.EnsureDefaults] adds such an entry to a create rule without any. A
// create learns IDs of the format of its first entry.
type ID struct {
	Path   string `mapstructure:"path"`                    // the name of a {segment} of match.path
	Query  string `mapstructure:"query" form:"parameter"`  // a parameter
	Header string `mapstructure:"header" form:"header"`    // a header, its name in any case
	JSON   string `mapstructure:"json" form:"member_path"` // dotted path of member names in the body
	Form   string `mapstructure:"form" form:"field"`       // a field of an urlencoded body
	Cookie string `mapstructure:"cookie" form:"cookie"`    // a cookie

	Optional bool `mapstructure:"optional"` // not in rules that settle, the same in all entries: a request may have no ID
	// JSONType is how the ID is written. 42 and "42" are one order.
	JSONType string `mapstructure:"json_type" default:"any" oneof:"any string number" only:"json"`
	// List means an array of IDs; not in create rules.
	List bool `mapstructure:"list" only:"json"`
	// MaxList bounds the IDs in the array.
	MaxList int `mapstructure:"max_list" default:"100" min:"1" max:"1000" only:"list"`
	// Separator stands between the IDs of a list that are one text.
	Separator string `mapstructure:"separator" oneof:", ; |" only:"list"`
	// MaxBody bounds the body, in bytes. The largest of a rule's entries counts.
	MaxBody int `mapstructure:"max_body" default:"65536" min:"1" max:"1048576" only:"json form"`

	// Format is what an ID looks like.
	Format    string `mapstructure:"format" default:"digits" oneof:"digits uuid timestamped snowflake pattern" change:"form"`
	MinLength int    `mapstructure:"min_length" only:"format=digits,timestamped,snowflake,pattern" change:"form"`           // the shortest ID in bytes; default 1
	MaxLength int    `mapstructure:"max_length" only:"format=digits,timestamped,snowflake,pattern" change:"form"`           // the longest ID in bytes, at most 256 for pattern and 64 for others; default 64 for pattern and 19 for others
	Max       IDMax  `mapstructure:"max" only:"format=digits,timestamped,snowflake" change:"form"`                          // the largest number; default int64, or none with a max_length over 19
	Pattern   string `mapstructure:"pattern" only:"format=pattern" need:"an RE2 expression for the whole ID" change:"form"` // RE2, matched against the whole ID
	// Case is that of letters in the canonical form. Default lower for uuid, as_is for pattern.
	Case string `mapstructure:"case" oneof:"lower upper as_is" was:"fold=lower" only:"format=uuid,pattern" change:"form"`
	Time IDTime `mapstructure:"time" only:"format=timestamped,snowflake" change:"form"` // where the creation time is
}

// FoldsCase reports whether IDs that differ in the case of letters are one.
func (id *ID) FoldsCase() bool { return id.Case == CaseLower || id.Case == CaseUpper }

// IDMax is the largest number that an ID may be: digits, or a word of [IDMax.Digits].
type IDMax string

// IDTime locates the creation time in an ID. Layout and At are for the format timestamped, Shift
// for snowflake. A timestamped ID has either a layout or an epoch. A layout is one of package time without separators: a year
// (2006 or 06), a day (01 and 02, or 002), and optionally 15, 04 and 05.
type IDTime struct {
	Layout string `mapstructure:"layout"` // of package time, of digits only; default 20060102150405, without an epoch
	At     int    `mapstructure:"at"`     // offset of the first digit of the date, in bytes; default 0
	Epoch  string `mapstructure:"epoch"`  // snowflake: RFC 3339, the time of 0 milliseconds; timestamped: the unit since 1970, ms (13 digits) or s (10); no default
	// Shift is the number of bits below the milliseconds, of format snowflake; default 22. The
	// other 31 of 63 count the milliseconds of three weeks.
	Shift int `mapstructure:"shift" min:"0" max:"32"`
}

// Lookup refuses requests for absent orders.
type Lookup struct {
	// Filter is the name of a filter.
	Filter string `mapstructure:"filter" need:"the name of a filter" of:"filters"`
	Absent Reply  `mapstructure:"absent" reply:"404 0s {\"error\":\"order not found\"}"` // the answer; default 404 {"error":"order not found"}
}

// Create learns the ID of a new order from the backend's answer.
type Create struct {
	// Filter is the name of a filter.
	Filter string `mapstructure:"filter" need:"the name of a filter" of:"filters"`
	Learn  Learn  `mapstructure:"learn"` // where the answer has the new ID, or the word table
	Dedup  *Dedup `mapstructure:"dedup"` // refuses a create of an order that exists
	Once   *Once  `mapstructure:"once"`  // stored answers, by an Idempotency-Key unless it has by
	// Lock is taken for the order that the request names, until its answer is learned: two
	// creates of one ID do not run at once.
	Lock        string `mapstructure:"lock" of:"locks" change:"lock"`
	Busy        Reply  `mapstructure:"busy" only:"lock" reply:"409 1s {\"error\":\"order is being created, try again\"}"`              // another create of the order runs; default 409, Retry-After 1s
	Unavailable Reply  `mapstructure:"unavailable" only:"lock" reply:"503 1s {\"error\":\"orders cannot be created now, try again\"}"` // Redis does not answer; default 503, Retry-After 1s
}

// Learn is the location of the new ID in the answer to a create. Exactly one of Table, ResponseJSON
// and ResponseHeader is set.
type Learn struct {
	// Table means that no answer names its order: learn: table. The filter's followed tables do.
	Table          bool   `mapstructure:"table"`
	ResponseJSON   string `mapstructure:"response_json"`                 // dotted path of a field
	ResponseHeader string `mapstructure:"response_header" form:"header"` // the name of a header, in any case
	Pattern        string `mapstructure:"pattern"`                       // RE2, searched in that text; its one group is the ID; default the whole text
}

// Settle holds a lock around the call.
type Settle struct {
	// Lock is the name of a lock.
	Lock        string      `mapstructure:"lock" need:"the name of a lock" of:"locks" change:"lock"`
	By          []Place     `mapstructure:"by" items:"4 places" empty:"name a place, such as {cookie: SID}, or remove it"`     // what the lock is by, in place of an order: at most 4, which make one key; excludes id, parts, lookup, limit and require
	Limit       *Limit      `mapstructure:"limit"`                                                                             // bounds the calls at once with the same second ID
	Once        *Once       `mapstructure:"once"`                                                                              // the stored answer of the order
	Require     []Condition `mapstructure:"require" items:"16 conditions" empty:"give it a condition, or remove it"`           // at most 16; all must hold, or the call is refused
	Busy        Reply       `mapstructure:"busy" reply:"409 1s {\"error\":\"order is being settled, try again\"}"`             // default 409, Retry-After 1s
	Unavailable Reply       `mapstructure:"unavailable" reply:"503 1s {\"error\":\"settlement is not available, try again\"}"` // without Redis, with too many settlements in flight, after a lost lease, or without a lock; default 503, Retry-After 1s
	// MaxHold is the longest call. ordergate ends a longer one, and holds its lock.
	MaxHold time.Duration `mapstructure:"max_hold" default:"10m" min:"1s" max:"24h"`

	// MaxInFlight bounds the settlements of all rules that the backend may have to work on:
	// those that were forwarded, and holds.
	MaxInFlight int `mapstructure:"max_in_flight" default:"100" min:"1" max:"100000"`
	// MaxInFlightPerClient bounds those of one client; 1 to MaxInFlight, default half. It shrinks
	// as more are in flight: see docs/locks.md.
	MaxInFlightPerClient int `mapstructure:"max_in_flight_per_client"`
	// BackendWorkers is how many calls the backend works on at once. With BackendTimeout, a hold that may
	// be too short is refused.
	BackendWorkers int `mapstructure:"backend_workers" with:"backend_timeout, the longest time that the backend works on one call" min:"1" max:"100000"`
	// BackendTimeout is the backend's longest time for one call.
	BackendTimeout time.Duration `mapstructure:"backend_timeout" with:"backend_workers, the number of calls that the backend works on at once" min:"1ms" max:"24h"`
}

// Limit bounds how many calls with the same second ID run at once: that of a merchant, for
// example.
type Limit struct {
	// Lock is of kind semaphore, and not the lock of the order.
	Lock string `mapstructure:"lock" need:"the name of a lock of kind semaphore" of:"locks" change:"lock"`
	// ID locates the second ID. Its name must not be one that a backend may confuse with the
	// order's.
	ID ID `mapstructure:"id"`
}

// Place is where a request has a token that is no order's, such as a session. Exactly one is set.
type Place struct {
	Cookie string `mapstructure:"cookie" form:"cookie"`    // a cookie
	Header string `mapstructure:"header" form:"header"`    // a header, its name in any case
	Query  string `mapstructure:"query" form:"parameter"`  // a parameter
	Form   string `mapstructure:"form" form:"field"`       // a field of an urlencoded body
	JSON   string `mapstructure:"json" form:"member_path"` // dotted path of member names in the body
}

// ID returns the place as that of an ID.
func (p Place) ID() ID {
	return ID{Cookie: p.Cookie, Header: p.Header, Query: p.Query, Form: p.Form, JSON: p.JSON, MaxBody: defaultIDBody}
}

// IsBy reports whether the rule settles by something that is no order.
func (r *Rule) IsBy() bool { return r.Settle != nil && len(r.Settle.By) > 0 }

// IsBy reports whether a lock of this name is by something that is no order.
func (c *Config) IsBy(lock string) bool {
	for i := range c.Rules {
		if c.Rules[i].IsBy() && c.Rules[i].Settle.Lock == lock {
			return true
		}
	}
	return false
}

// TokenSecret returns what keys the hash in the lock's key of a rule with settle.by; "": nothing.
func (c *Config) TokenSecret(r *Rule) Secret {
	if !r.IsBy() {
		return ""
	}
	return c.Locks[r.Settle.Lock].Secret
}

// OfTokens reports whether the lock is one of settle.by: only their fences may end so soon.
func (l *Lock) OfTokens() bool { return 0 < l.KeepFence && l.KeepFence < leastFence }

// fenceOfTokens returns how long the last fence of a lock stays that is by tokens: clients make
// them up, and no database compares their fences.
func (l *Lock) fenceOfTokens() time.Duration { return max(l.Lease, l.OnUnknownOutcome.Hold) }

func (v *validator) by(path string, r *Rule) {
	s := r.Settle
	if len(s.By) == 0 {
		return
	}
	rule := path[:len(path)-len(".settle")]
	const message = "is for an order, and settle.by names none: remove one of the two"
	v.without(rule, r, message, "id", "parts", "lookup")
	v.without(path, s, message, "limit", "require")
	if _, defined := v.config.Locks[s.Lock]; !defined {
		return
	}
	if parts := v.uses[s.Lock].Parts(); len(parts) > 0 {
		v.reject(path+".lock", "%s has {%s} in its key, which is for orders: give settle.by a lock of its own", quote(s.Lock), parts[0])
	}
	for i := range v.config.Rules {
		o := &v.config.Rules[i]
		if !o.IsBy() && o.OrderLock() == s.Lock || o.Settle != nil && o.Settle.Limit != nil && o.Settle.Limit.Lock == s.Lock {
			v.reject(path+".lock", "%s is also the lock of orders, in rule %s: give settle.by a lock of its own", quote(s.Lock), quote(o.Name))
			return
		}
	}
}

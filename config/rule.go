package config

import (
	"time"
)

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
	Name    string `mapstructure:"name"` // unique, [a-z0-9][a-z0-9_-]{0,62}
	Match   Match  `mapstructure:"match"`
	Backend string `mapstructure:"backend"` // default that of the file
	// FrontControllers are the paths at which a backend of kind strict or php chooses its
	// action by parameters. The gate refuses a request there that names an order and that no
	// rule matches. Default those of the file.
	FrontControllers []string `mapstructure:"front_controllers"`

	// JSONWithoutType is for a body without a Content-Type, in rules that read an ID from
	// JSON. Default refuse for backend strict, since some (Rack, CGI.pm) read such a body as
	// a form; otherwise accept.
	JSONWithoutType string `mapstructure:"json_without_type"`

	Pass bool `mapstructure:"pass"` // exempts matching requests; excludes id, parts, invalid, lookup, create, settle and once
	IDs  []ID `mapstructure:"id"`   // at most 8, in different locations; a mapping in the file is a list of one
	// Parts are what the ID is unique within, such as a tenant, by name: at most 4, and at most 8
	// with the entries of id. Each request must have all of them. They are those in the key of
	// the rule's lock, and those of its filter.
	Parts   map[string]ID `mapstructure:"parts"`
	names   []string      // see PartNames
	Answer  *Answer       `mapstructure:"answer"`  // what the backend's answers mean; default that of the file
	Invalid Reply         `mapstructure:"invalid"` // default 400; with an empty body, the gate describes the fault
	Lookup  *Lookup       `mapstructure:"lookup"`
	Create  *Create       `mapstructure:"create"` // excludes settle and lookup
	Settle  *Settle       `mapstructure:"settle"`
	Once    *Once         `mapstructure:"once"` // answers that are stored by a key in the request, or of the order that settle names
	Mode    Mode          `mapstructure:"mode"` // default enforce
}

// How the literal segments of a path are compared.
const (
	CaseSensitive   = "sensitive"
	CaseInsensitive = "insensitive"
)

// How the gate treats a request to a rule's path whose method no rule names.
const (
	OtherMethodsRefuse = "refuse"
	OtherMethodsPass   = "pass"
)

// QueryValues are values of a parameter. A file may have one of them in place of a list.
type QueryValues []string

// Match selects requests. All of its conditions must hold.
type Match struct {
	Methods []string `mapstructure:"methods"` // upper case; at least one
	Path    string   `mapstructure:"path"`    // "/orders/{id}": segments of [A-Za-z0-9._~-] and {names}, no query
	// Query maps parameters that the query must have to their values, one of which it has as
	// written. Names have 1 to 128 letters, digits, _ and -; values 1 to 256 visible ASCII
	// characters but & ; and #, with a letter or digit among them.
	Query        map[string]QueryValues `mapstructure:"query"`
	Case         string                 `mapstructure:"case"`          // of the literal segments; default sensitive
	Host         string                 `mapstructure:"host"`          // exact :authority without the port, lower case; default any
	OtherMethods string                 `mapstructure:"other_methods"` // default refuse in a rule with settle, pass in others
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
	Path   string `mapstructure:"path"`   // the name of a {segment} of match.path
	Query  string `mapstructure:"query"`  // a parameter
	Header string `mapstructure:"header"` // in any case; [Config.EnsureDefaults] makes it lower
	JSON   string `mapstructure:"json"`   // dotted path of member names in the body
	Form   string `mapstructure:"form"`   // a field of an urlencoded body
	Cookie string `mapstructure:"cookie"`

	Optional bool   `mapstructure:"optional"`  // not in rules that settle, the same in all entries: a request may have no ID
	JSONType string `mapstructure:"json_type"` // with json; default any
	List     bool   `mapstructure:"list"`      // with json, not in create rules: an array of IDs
	MaxList  int    `mapstructure:"max_list"`  // IDs in the array, 1 to 1,000, with list; default 100
	// Separator is ",", ";" or "|" where the IDs of a list are one text, with it between them.
	Separator string `mapstructure:"separator"`
	MaxBody   int    `mapstructure:"max_body"` // bytes, 1 to 1,048,576, with json and form; default 65,536

	Format    string `mapstructure:"format"`     // default digits
	MinLength int    `mapstructure:"min_length"` // bytes, not with uuid; default 1
	MaxLength int    `mapstructure:"max_length"` // bytes, at most 256 for pattern and 64 for others; default 64 for pattern and 19 for others
	Max       IDMax  `mapstructure:"max"`        // the largest number, not with uuid and pattern; default int64, or none with a max_length over 19
	Pattern   string `mapstructure:"pattern"`    // RE2, matched against the whole ID; with format pattern
	Case      string `mapstructure:"case"`       // with uuid and pattern; lower, upper or as_is, and fold is another name of lower; default lower for uuid, as_is for pattern
	Time      IDTime `mapstructure:"time"`       // with formats timestamped and snowflake
}

// FoldsCase reports whether IDs that differ in the case of letters are one.
func (id *ID) FoldsCase() bool { return id.Case == CaseLower || id.Case == CaseUpper }

// IDMax is the largest number that an ID may be: digits, or a word of [IDMax.Digits].
type IDMax string

// IDTime locates the creation time in an ID. Layout and At are for the format timestamped, Shift
// for snowflake. A timestamped ID has either a layout or an epoch. A layout is one of package time without separators: a year
// (2006 or 06), a day (01 and 02, or 002), and optionally 15, 04 and 05.
type IDTime struct {
	Layout string `mapstructure:"layout"` // default 20060102150405, without an epoch
	At     int    `mapstructure:"at"`     // offset of the first digit of the date, in bytes; default 0
	Epoch  string `mapstructure:"epoch"`  // snowflake: RFC 3339, the time of 0 milliseconds; timestamped: the unit since 1970, ms (13 digits) or s (10); no default
	Shift  int    `mapstructure:"shift"`  // bits below the milliseconds, 0 to 32; default 22
}

// Lookup refuses requests for absent orders.
type Lookup struct {
	Filter string `mapstructure:"filter"`
	Absent Reply  `mapstructure:"absent"` // default 404 {"error":"order not found"}
}

// Create learns the ID of a new order from the backend's answer.
type Create struct {
	Filter string `mapstructure:"filter"`
	Learn  Learn  `mapstructure:"learn"`
	Dedup  *Dedup `mapstructure:"dedup"` // nil: a create of an order that exists goes on, too
	Once   *Once  `mapstructure:"once"`  // by an Idempotency-Key, unless it has by
	// Lock is taken for the order that the request names, until its answer is learned: two
	// creates of one ID do not run at once. "": none.
	Lock        string `mapstructure:"lock"`
	Busy        Reply  `mapstructure:"busy"`        // with lock; default 409, Retry-After 1s
	Unavailable Reply  `mapstructure:"unavailable"` // with lock; default 503, Retry-After 1s
}

// Learn is the location of the new ID in the answer to a create. Exactly one of Table, ResponseJSON
// and ResponseHeader is set.
type Learn struct {
	// Table means that no answer names its order: learn: table. The filter's followed tables do.
	Table          bool   `mapstructure:"table"`
	ResponseJSON   string `mapstructure:"response_json"`   // dotted path of a field
	ResponseHeader string `mapstructure:"response_header"` // in any case; [Config.EnsureDefaults] makes it lower
	Pattern        string `mapstructure:"pattern"`         // RE2, searched in that text; its one group is the ID; default the whole text
}

// Settle holds a lock around the call.
type Settle struct {
	Lock        string        `mapstructure:"lock"`
	By          []Place       `mapstructure:"by"`          // what the lock is by, in place of an order: at most 4, which make one key; excludes id, parts, lookup, limit and require
	Limit       *Limit        `mapstructure:"limit"`       // nil: none
	Once        *Once         `mapstructure:"once"`        // the stored answer of the order; nil: none
	Require     []Condition   `mapstructure:"require"`     // at most 16; all must hold, or the call is refused
	Busy        Reply         `mapstructure:"busy"`        // default 409, Retry-After 1s
	Unavailable Reply         `mapstructure:"unavailable"` // Redis does not answer; default 503, Retry-After 1s
	MaxHold     time.Duration `mapstructure:"max_hold"`    // ordergate ends a longer call; 1s to 24h, default 10m

	// MaxInFlight bounds the settlements of all rules that the backend may have to work on:
	// those that were forwarded, and holds. 1 to 100,000, default 100. MaxInFlightPerClient
	// bounds those of one client; 1 to MaxInFlight, default half. It shrinks as more are in
	// flight: see docs/locks.md.
	MaxInFlight          int `mapstructure:"max_in_flight"`
	MaxInFlightPerClient int `mapstructure:"max_in_flight_per_client"`
	// BackendWorkers is how many calls the backend works on at once, 1 to 100,000.
	// BackendTimeout is its longest time for one call, up to 24h. Both or none: with them,
	// config rejects a hold that may be too short.
	BackendWorkers int           `mapstructure:"backend_workers"`
	BackendTimeout time.Duration `mapstructure:"backend_timeout"`
}

// Limit bounds how many calls with the same second ID run at once: that of a merchant, for
// example.
type Limit struct {
	Lock string `mapstructure:"lock"` // of kind semaphore; not the lock of the order
	// ID locates the second ID. Its name must not be one that a backend may confuse with the
	// order's.
	ID ID `mapstructure:"id"`
}

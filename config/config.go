// Package config reads ordergate's YAML file into one validated value.
//
// Start with [Load]. It is strict: an unknown or repeated key, a value of the
// wrong type or out of range, and a name that nothing defines are all refused,
// every one of them in a single run, each with its YAML path and line. The
// package knows nothing of the servers and filters that are built from the
// value; that is the work of cmd/sidecar.
package config

import "time"

// Config is the whole file. The zero value is not usable; [Load] returns one
// that is complete and consistent. It is not changed after that, so it may be
// read from any goroutine.
//
// The names of filters, sources, locks and rules are [a-z0-9][a-z0-9_-]{0,62}.
type Config struct {
	Listen  Listen            `mapstructure:"listen"`
	Redis   *Redis            `mapstructure:"redis"` // nil when nothing in the file needs Redis
	Filters map[string]Filter `mapstructure:"filters"`
	Sources map[string]Source `mapstructure:"sources"`
	Locks   map[string]Lock   `mapstructure:"locks"`
	Rules   []Rule            `mapstructure:"rules"`
}

// Listen holds the addresses to serve on: "host:port" or "unix:/path". Port 0
// takes a free one. An empty address is not served, which is refused where a
// rule needs it: lookup needs authz, create and settle need proc. No two may
// overlap.
type Listen struct {
	Authz string `mapstructure:"authz"` // gRPC ext_authz; default 127.0.0.1:9191
	Proc  string `mapstructure:"proc"`  // gRPC ext_proc; default 127.0.0.1:9192
	Admin string `mapstructure:"admin"` // HTTP metrics and health; default 127.0.0.1:9194
}

// Redis modes.
const (
	RedisSingle   = "single"
	RedisEmbedded = "embedded" // a Redis inside this process: for trying out, one sidecar only, nothing survives it
)

// Redis says where the locks and the change logs live.
type Redis struct {
	Mode         string   `mapstructure:"mode"`          // default single
	Addresses    []string `mapstructure:"addresses"`     // default [127.0.0.1:6379]; exactly one with mode single, none with embedded
	Username     string   `mapstructure:"username"`      // an ACL user; goes with a password
	PasswordFile string   `mapstructure:"password_file"` // read at start, trailing line break removed
	PasswordEnv  string   `mapstructure:"password_env"`  // name of an environment variable

	// Password is what PasswordFile or PasswordEnv held. It is never printed.
	Password string `mapstructure:"-" json:"-"`
}

// Filter kinds and freshness.
const (
	FilterLocal = "local"

	FreshnessBarrier = "barrier" // a negative waits for a read of the change log to its tail
	FreshnessNone    = "none"    // a negative counts at once: only where nothing else creates orders
)

// Filter is one set of order IDs.
type Filter struct {
	Kind              string   `mapstructure:"kind"`                // default local
	Capacity          uint64   `mapstructure:"capacity"`            // IDs, 1 to 10^11; default 1,000,000
	FalsePositiveRate float64  `mapstructure:"false_positive_rate"` // 1e-9 to 0.5; default 0.001
	Sources           []string `mapstructure:"sources"`             // names of sources, read at start
	Freshness         string   `mapstructure:"freshness"`           // default barrier, or none in a file that uses no Redis
}

// SourceCSV is a file of IDs, the one kind of source.
const SourceCSV = "csv"

// Source is a place that order IDs are read from.
type Source struct {
	Kind string `mapstructure:"kind"` // csv; no default
	Path string `mapstructure:"path"` // csv: one ID a line
}

// Lock kinds and formats.
const (
	LockExclusive  = "exclusive"
	FormatRedisson = "redisson"
)

// Lock is one kind of per-order lock.
type Lock struct {
	Kind             string        `mapstructure:"kind"`                // default exclusive
	Format           string        `mapstructure:"format"`              // default redisson
	Key              string        `mapstructure:"key"`                 // Redis key with {id} in it, once; default "order:lock:{id}"
	Lease            time.Duration `mapstructure:"lease"`               // 1s to 1h, renewed at a third; default 30s
	Wait             Wait          `mapstructure:"wait"`                // default 3 tries, 100ms apart
	MaxWaitersPerKey int           `mapstructure:"max_waiters_per_key"` // 0 to 100,000 in this process; default 100
	OnUnknownOutcome UnknownPolicy `mapstructure:"on_unknown_outcome"`
}

// Wait bounds the wait for a lock that another holds: either Tries attempts
// Every apart, or as many as fit UpTo. Tries of 1 does not wait at all.
type Wait struct {
	Tries int           `mapstructure:"tries"` // 1 to 1,000
	Every time.Duration `mapstructure:"every"` // 1ms to 1m
	UpTo  time.Duration `mapstructure:"up_to"` // 1ms to 10m; excludes the other two
}

// UnknownPolicy says what becomes of a lease when nobody knows whether the
// backend is still at work.
type UnknownPolicy struct {
	Hold time.Duration `mapstructure:"hold"` // 1s to 24h; default the lock's lease
}

// Rule modes.
const (
	ModeEnforce = "enforce"
	ModeObserve = "observe" // decide and count, change nothing
)

// Rule is what to do with the requests that match it.
type Rule struct {
	Name    string  `mapstructure:"name"` // unique, [a-z0-9][a-z0-9_-]{0,62}
	Match   Match   `mapstructure:"match"`
	ID      ID      `mapstructure:"id"`
	Invalid Reply   `mapstructure:"invalid"` // default 400 {"error":"malformed order ID"}
	Lookup  *Lookup `mapstructure:"lookup"`
	Create  *Create `mapstructure:"create"` // excludes settle and lookup
	Settle  *Settle `mapstructure:"settle"`
	Mode    string  `mapstructure:"mode"` // default enforce
}

// Match selects requests. All of its conditions must hold.
type Match struct {
	Methods []string `mapstructure:"methods"` // upper case; at least one
	Path    string   `mapstructure:"path"`    // "/orders/{id}": segments of [A-Za-z0-9._~-] and {names}, no query
	Host    string   `mapstructure:"host"`    // exact :authority without the port, lower case; default any
}

// ID formats.
const (
	FormatDigits  = "digits"
	FormatUUID    = "uuid"
	FormatPattern = "pattern"
)

// ID says where the order ID stands in a request and what it looks like.
// Exactly one of Path, Query and Header is set, except in a create rule, which
// may have none of them (the ID is then only in the answer).
type ID struct {
	Path      string `mapstructure:"path"`       // the name of a {segment} of match.path
	Query     string `mapstructure:"query"`      // a parameter
	Header    string `mapstructure:"header"`     // lower case
	Optional  bool   `mapstructure:"optional"`   // create rules only: a request without an ID is fine
	Format    string `mapstructure:"format"`     // default digits
	MinLength int    `mapstructure:"min_length"` // bytes, not with uuid; default 1
	MaxLength int    `mapstructure:"max_length"` // bytes, at most 64 for digits, 256 for pattern; default 19 and 64
	Pattern   string `mapstructure:"pattern"`    // RE2, matched against the whole ID; with format pattern
}

// Reply is an answer that ordergate gives itself.
type Reply struct {
	Status     int           `mapstructure:"status"`      // 400 to 599
	Body       string        `mapstructure:"body"`        // at most 64 KiB
	RetryAfter time.Duration `mapstructure:"retry_after"` // 0s to 24h, sent in whole seconds, rounded up; 0 sends none
}

// Lookup turns away requests for orders that definitely do not exist.
type Lookup struct {
	Filter string `mapstructure:"filter"`
	Absent Reply  `mapstructure:"absent"` // default 404 {"error":"order not found"}
}

// Create learns the ID of a new order from the backend's answer.
type Create struct {
	Filter string `mapstructure:"filter"`
	Learn  Learn  `mapstructure:"learn"`
}

// Learn says where the answer to a create carries the new ID: exactly one of
// the two is set.
type Learn struct {
	ResponseJSON   string `mapstructure:"response_json"`   // dotted path of a field
	ResponseHeader string `mapstructure:"response_header"` // lower case
}

// Settle brackets the call with a lock.
type Settle struct {
	Lock        string        `mapstructure:"lock"`
	Busy        Reply         `mapstructure:"busy"`        // default 409, Retry-After 1s
	Unavailable Reply         `mapstructure:"unavailable"` // Redis cannot be asked; default 503, Retry-After 1s
	MaxHold     time.Duration `mapstructure:"max_hold"`    // renewal stops after it; 1s to 24h, default 10m
}

// Package config reads ordergate's YAML file into one validated value.
//
// Start with [Load]. It is strict: an unknown or repeated key, a value of the
// wrong type or out of range, and a name that nothing defines are all refused,
// every one of them in a single run, each with its YAML path and line. The
// package knows nothing of the servers and filters that are built from the
// value; that is the work of cmd/sidecar.
package config

import (
	"io/fs"
	"strconv"
	"time"
)

// Config is the whole file. The zero value is not usable; [Load] returns one
// that is complete and consistent. It is not changed after that, so it may be
// read from any goroutine.
//
// The names of filters, sources, locks and rules are [a-z0-9][a-z0-9_-]{0,62}.
type Config struct {
	Backend string `mapstructure:"backend"` // default strict; for rules that name none
	// FrontControllers is for rules that have none; default /index.php and /.
	FrontControllers []string `mapstructure:"front_controllers"`

	Listen  Listen            `mapstructure:"listen"`
	Redis   *Redis            `mapstructure:"redis"` // nil when nothing in the file needs Redis
	Filters map[string]Filter `mapstructure:"filters"`
	Sources map[string]Source `mapstructure:"sources"`
	Locks   map[string]Lock   `mapstructure:"locks"`
	Rules   []Rule            `mapstructure:"rules"`
}

// Listen holds the addresses to serve on: "host:port" or "unix:/path". Port 0
// takes a free one. An empty address is not served, which is refused where a
// rule needs it: lookup needs authz or http, create and settle need proc. No two
// may overlap.
type Listen struct {
	Authz string `mapstructure:"authz"` // gRPC ext_authz; default 127.0.0.1:9191
	Proc  string `mapstructure:"proc"`  // gRPC ext_proc; default 127.0.0.1:9192
	HTTP  string `mapstructure:"http"`  // HTTP sub-requests of nginx, Traefik and Envoy; default empty
	Admin string `mapstructure:"admin"` // HTTP metrics and health; default 127.0.0.1:9194

	// The token of requests to the admin address that change something. Without one, those
	// of operators need none, and services cannot add IDs (POST /v1/...).
	TokenFile string `mapstructure:"token_file"`
	TokenEnv  string `mapstructure:"token_env"`
	Token     Secret `mapstructure:"-" json:"-"` // what one of them held, at least 16 bytes; "" without either

	// AdminHosts are the names under which the admin address may be asked for, besides IP
	// addresses and localhost.
	AdminHosts []string `mapstructure:"admin_hosts"`

	// TLS is for authz, proc and http on host:port, nil: none. One of these that is not on
	// loopback needs it, and admin there needs a token, unless Insecure is set.
	TLS      *ListenTLS `mapstructure:"tls"`
	Insecure bool       `mapstructure:"insecure"`

	SocketMode string `mapstructure:"socket_mode"` // of unix sockets, three octal digits; default "0660"
}

// FileMode returns SocketMode as a number; 0 if it is none.
func (l Listen) FileMode() fs.FileMode {
	mode, err := strconv.ParseUint(l.SocketMode, 8, 9)
	if err != nil {
		return 0
	}
	return fs.FileMode(mode)
}

// ListenTLS says how servers speak TLS with clients that show a certificate. The files are
// PEM, and all three are needed.
type ListenTLS struct {
	Cert string `mapstructure:"cert"` // our certificate, with those that lead from it to an authority
	Key  string `mapstructure:"key"`  // its private key
	CA   string `mapstructure:"ca"`   // authorities that sign the clients' certificates
	// Names are those of which a client's certificate has one, as a DNS name or a URI. None:
	// any certificate of the authorities will do.
	Names []string `mapstructure:"names"`
}

// Redis modes.
const (
	RedisSingle   = "single"
	RedisSentinel = "sentinel" // a master that Sentinels name, and replace
	RedisCluster  = "cluster"
	RedisEmbedded = "embedded" // a Redis inside this process: for trying out, one sidecar only, nothing survives it
)

// Redis says where the locks and the change logs live.
type Redis struct {
	Mode string `mapstructure:"mode"` // default single
	// Addresses are where to ask: the server (mode single, exactly one; default
	// 127.0.0.1:6379), Sentinels (mode sentinel), or any nodes of the cluster, which
	// name the others; none with embedded.
	Addresses    []string `mapstructure:"addresses"`
	Master       string   `mapstructure:"master"`        // what the Sentinels call the master; with mode sentinel, default mymaster
	Username     string   `mapstructure:"username"`      // an ACL user; goes with a password
	PasswordFile string   `mapstructure:"password_file"` // read at start, trailing line break removed
	PasswordEnv  string   `mapstructure:"password_env"`  // name of an environment variable

	// The same of the Sentinels, which have users of their own.
	SentinelUsername     string `mapstructure:"sentinel_username"`
	SentinelPasswordFile string `mapstructure:"sentinel_password_file"`
	SentinelPasswordEnv  string `mapstructure:"sentinel_password_env"`

	// Member is the name of the place that this ordergate runs at: the same after a
	// restart, and another one for every other ordergate. At most 200 bytes, without #.
	// Left empty by default: whoever uses it takes the host's name and the address of
	// listen.proc, or authz.
	Member string `mapstructure:"member"`

	TLS *TLS `mapstructure:"tls"` // nil: none. With mode sentinel it is for the Sentinels too

	// Password is what PasswordFile or PasswordEnv held, and SentinelPassword
	// likewise. They are never printed.
	Password         string `mapstructure:"-" json:"-"`
	SentinelPassword string `mapstructure:"-" json:"-"`
}

// TLS says how to speak TLS to Redis. The zero value trusts the system's
// authorities and shows no certificate. The files are PEM.
type TLS struct {
	CA         string `mapstructure:"ca"`          // authorities that sign the servers' certificates, in place of the system's
	Cert       string `mapstructure:"cert"`        // our certificate, with those that lead from it to an authority; goes with Key
	Key        string `mapstructure:"key"`         // its private key
	ServerName string `mapstructure:"server_name"` // in the servers' certificates; default the host of each address
}

// Filter kinds, layouts, segments, ways to expand, and freshness.
const (
	FilterLocal    = "local"        // a Bloom filter in memory
	FilterExact    = "exact"        // every ID, in memory: numbers only
	FilterBloom    = "redis-bloom"  // a filter of RedisBloom, shared by all ordergates
	FilterBitmap   = "redis-bitmap" // bits in any Redis, shared by all ordergates
	FilterRedisson = "redisson"     // an RBloomFilter, shared with Java services
	FilterLayered  = "layered"      // memory before one of the three in Redis

	CodecDefault = "default" // Kryo5, which a Java service has that chose none
	CodecString  = "string"  // StringCodec

	LayoutBlocked = "blocked" // the bits of an ID lie in one cache line
	LayoutClassic = "classic" // they lie anywhere: less memory, slower

	SegmentDay         = "day"
	SegmentFromID      = "id"      // an ID tells its day
	SegmentFromArrival = "arrival" // an ID belongs to the day on which it was read or learned
	OlderUnknown       = "unknown" // an ID whose day is kept no more passes
	OlderAbsent        = "absent"  // it is refused

	ExpandRebuild = "rebuild" // read everything again into a larger filter
	ExpandLayers  = "layers"  // add another layer

	FreshnessWindow = "window" // a negative counts within a window after a read of the change log
	FreshnessNone   = "none"   // it counts always: only where nothing else creates orders
)

// Filter is one set of order IDs.
type Filter struct {
	Kind              string   `mapstructure:"kind"`                // default local
	Capacity          uint64   `mapstructure:"capacity"`            // IDs, 1 to 10^11; default 1,000,000
	FalsePositiveRate float64  `mapstructure:"false_positive_rate"` // 1e-9 to 0.5; default 0.001
	Sources           []string `mapstructure:"sources"`             // names of sources, read at start
	// Freshness is what a negative rests on; default a window of 500ms, or none in a file
	// that uses no Redis.
	Freshness Freshness `mapstructure:"freshness"`
	ChangeLog ChangeLog `mapstructure:"change_log"`

	// ShareLoad has one ordergate read the sources and the others take its snapshot
	// through Redis, when several start at once. Not for kinds in Redis; default true
	// where there are tables among the sources, in a file that uses Redis. It is never
	// nil once defaults are filled in.
	ShareLoad *bool `mapstructure:"share_load"`
	// Reconcile compares the tables with the filter in the background; nil: never.
	Reconcile *Reconcile `mapstructure:"reconcile"`

	// StaleAfter bounds the age of what is known of the change log: a filter that has
	// not read it to its end for longer is unknown. 1s to 1h, default 5s.
	StaleAfter time.Duration `mapstructure:"stale_after"`
	// AlertFalsePositiveRate is the measured share of absent IDs that pass from which
	// on the filter complains, and grows if it has Expand; 0 to 0.5, default 0: never.
	AlertFalsePositiveRate float64 `mapstructure:"alert_false_positive_rate"`

	Layout   string    `mapstructure:"layout"`   // of the bits in memory; default blocked
	Segments *Segments `mapstructure:"segments"` // nil: no order is ever forgotten
	Expand   *Expand   `mapstructure:"expand"`   // not of kinds exact and redisson; nil: it passes more absent IDs beyond its capacity
	Snapshot *Snapshot `mapstructure:"snapshot"` // of what is in memory; nil: none

	RedisKind string `mapstructure:"redis_kind"` // of kind layered: which of the others is behind it; default redis-bitmap
	KeyPrefix string `mapstructure:"key_prefix"` // of the keys in Redis, for the kinds there; default "order:bloom:<name>"
	Shards    int    `mapstructure:"shards"`     // of the kinds in Redis, 1 to 16,384; default 1
	Codec     string `mapstructure:"codec"`      // of kind redisson; default default

	SecretFile string `mapstructure:"secret_file"` // keys the hashes; read at start, trailing line break removed
	SecretEnv  string `mapstructure:"secret_env"`  // name of an environment variable
	// Secret is what SecretFile or SecretEnv held, "" without either: one is made then.
	// At least 16 bytes.
	Secret Secret `mapstructure:"-" json:"-"`
}

// Freshness is what a negative of a filter rests on. In a file it is {window: 500ms}, or a
// word: window, which is the default window, or none.
type Freshness struct {
	Mode string `mapstructure:"mode"` // window or none
	// Window is how long a complete read of the change log makes negatives count, from
	// when it was sent. The answer to a create may have to wait for as long. Of mode
	// window, 100ms to 10s; default [DefaultWindow].
	Window time.Duration `mapstructure:"window"`
}

// ChangeLog says how the list of new IDs in Redis is kept. All ordergates of a
// deployment need the same.
type ChangeLog struct {
	// Keep is how many entries there are at least, 10,000 to 10^9, or 0: all. It takes a
	// table among the sources, which has what is trimmed, and is then 1,000,000 by
	// default, but not with segments from arrival: what is read again loses its day.
	Keep int `mapstructure:"keep"`
	// Lease is how long the others trust one that they do not hear of, and so how long
	// the answer to a create waits at most that could not be logged; 200ms to 10s,
	// default 2s.
	Lease time.Duration `mapstructure:"lease"`
	// Expel is after how long one that is not heard of is taken for gone, 10s to 24h;
	// default 5m.
	Expel time.Duration `mapstructure:"expel"`
}

// Reconcile compares the tables among a filter's sources with the filter.
type Reconcile struct {
	Every  time.Duration `mapstructure:"every"`  // how often all rows are looked at, 1m to 720h; default 24h
	Sample int           `mapstructure:"sample"` // newest rows looked at each minute, 0 to 100,000; default 1000
	Rate   int           `mapstructure:"rate"`   // rows a second of the whole pass, 1 to 10^6; default 2000
}

// InRedis returns the kind of filter that is in Redis, "" if none is.
func (f Filter) InRedis() string {
	switch f.Kind {
	case FilterBloom, FilterBitmap, FilterRedisson:
		return f.Kind
	case FilterLayered:
		return f.RedisKind
	}
	return ""
}

// Snapshot has a filter written to a file, which a restart begins with.
type Snapshot struct {
	Path  string        `mapstructure:"path"`  // no default; a file beside it has the secret where none is given
	Every time.Duration `mapstructure:"every"` // 1s to 24h, default 10m
}

// Segments has a filter forget old orders.
type Segments struct {
	By    string `mapstructure:"by"`    // day, of UTC; default
	Keep  int    `mapstructure:"keep"`  // days, today included: 1 to 3,660, no default
	From  string `mapstructure:"from"`  // default id
	Older string `mapstructure:"older"` // default unknown; with from arrival it has to be absent
}

// Expand has a filter grow while it is in use.
type Expand struct {
	AtFill float64 `mapstructure:"at_fill"` // share of the capacity: 0.1 to 1, default 0.8
	By     float64 `mapstructure:"by"`      // 1.1 to 16, default 1.5
	How    string  `mapstructure:"how"`     // default rebuild where there are sources and no segments, else layers
	Max    uint64  `mapstructure:"max"`     // IDs, which no growth goes beyond; at least the capacity, default 16 times that
}

// Kinds of sources, and how they are followed.
const (
	SourceCSV      = "csv"      // a file of IDs
	SourceMySQL    = "mysql"    // a table of MySQL or MariaDB
	SourcePostgres = "postgres" // a table of PostgreSQL

	FollowNone    = "none"    // orders are created through ordergate only
	FollowPoll    = "poll"    // the table's new rows are read every now and then
	FollowBinlog  = "binlog"  // of kind mysql: as a replica
	FollowLogical = "logical" // of kind postgres: by logical replication

	OnBadFail = "fail" // a row without a usable ID ends the reading
	OnBadSkip = "skip" // it is counted, and named
)

// Source is a place that order IDs are read from.
type Source struct {
	Kind string `mapstructure:"kind"` // no default; "mariadb" and "postgresql" are other names of the two
	Path string `mapstructure:"path"` // csv: one ID a line

	// What follows is for tables. The data source name has a password in it, so it is
	// given by the environment or a file.
	DSNEnv       string        `mapstructure:"dsn_env"`
	DSNFile      string        `mapstructure:"dsn_file"`
	Table        string        `mapstructure:"table"`         // or schema.table
	IDColumn     string        `mapstructure:"id_column"`     // no default
	CursorColumn string        `mapstructure:"cursor_column"` // indexed, and greater for later rows; default the ID column
	Ascending    bool          `mapstructure:"ascending"`     // later rows have greater cursors though the database does not count them up (times, Snowflakes, ULIDs)
	Batch        int           `mapstructure:"batch"`         // rows a query, 10 to 100,000; default 10,000
	Pause        time.Duration `mapstructure:"pause"`         // after each batch, up to 1m; default 0
	MaxRate      int           `mapstructure:"max_rate"`      // rows a second, 0 to 10^7; default 0: no limit
	OnBad        string        `mapstructure:"on_bad"`        // default fail
	Overlap      time.Duration `mapstructure:"overlap"`       // the longest that a transaction takes which creates an order, 1s to 24h; default 1m
	Follow       string        `mapstructure:"follow"`        // default none
	Every        time.Duration `mapstructure:"every"`         // of follow poll: 100ms to 1h, default 1s
	Grace        time.Duration `mapstructure:"grace"`         // an ID that tells a younger time is never absent; 0 to 24h, default 0; all IDs have to tell one, to the second
	ServerID     uint32        `mapstructure:"server_id"`     // of follow binlog: unlike every other replica's; default 0: by chance
	Slot         string        `mapstructure:"slot"`          // of follow logical; default "ordergate_<source>"
	Publication  string        `mapstructure:"publication"`   // of follow logical; default "ordergate_<source>"

	// DSN is what the file or the variable held.
	DSN Secret `mapstructure:"-" json:"-"`
}

// Live reports whether the source has each order as soon as it exists.
func (s Source) Live() bool { return s.Kind == SourceMySQL || s.Kind == SourcePostgres }

// Lock kinds and formats.
const (
	LockExclusive = "exclusive" // one holder
	LockFair      = "fair"      // one holder, in the order of arrival
	LockRead      = "read"      // shared with other readers; the other side of a lock of kind write with the same key
	LockWrite     = "write"     // alone; the other side of one of kind read
	LockQuorum    = "quorum"    // exclusive, held on most of several servers
	LockSemaphore = "semaphore" // at most Permits holders

	FormatRedisson = "redisson" // Redisson's
	FormatString   = "string"   // SET key owner NX PX, for kinds exclusive and quorum
)

// ObservedSuffix follows the keys of the locks that a rule in mode observe takes,
// to see how often they would be busy: it keeps them apart from those that anybody
// relies on.
const ObservedSuffix = ":observe"

// Lock is one kind of per-order lock.
type Lock struct {
	Kind             string        `mapstructure:"kind"`                // default exclusive
	Format           string        `mapstructure:"format"`              // default redisson
	Key              string        `mapstructure:"key"`                 // Redis key with {id} in it, once; default "order:lock:{id}"
	Permits          int           `mapstructure:"permits"`             // of kind semaphore: 1 to 1,000,000, no default
	Quorum           *Quorum       `mapstructure:"quorum"`              // of kind quorum; otherwise nil
	Replicas         *Replicas     `mapstructure:"replicas"`            // nil: a grant counts once the master has it
	Lease            time.Duration `mapstructure:"lease"`               // 1s to 1h, renewed at a third; default 30s
	Wait             Wait          `mapstructure:"wait"`                // default 3 tries, 100ms apart
	MaxWaitersPerKey int           `mapstructure:"max_waiters_per_key"` // 0 to 100,000 in this process; default 100
	OnUnknownOutcome UnknownPolicy `mapstructure:"on_unknown_outcome"`
	// KeepFence is how long the fence of a lock's last grant stays in Redis: 0, for ever, or
	// 24h to 87600h (ten years). Default 0 of kind exclusive in format redisson, which Java
	// counts on from, and otherwise 24h. Of kind semaphore, its counters stay as long.
	KeepFence time.Duration `mapstructure:"keep_fence"`
}

// Quorum names the servers of a lock of kind quorum. Those are single servers, and
// independent of one another and of that of the section redis, from which they have
// the user, the password and TLS.
type Quorum struct {
	Addresses []string `mapstructure:"addresses"` // an odd number of at least 3, each its own server
}

// Replicas has a grant count only when replicas have confirmed it, which makes it
// unlikely, not impossible, that a failover forgets it. Not with mode embedded,
// and not for kind quorum.
type Replicas struct {
	Confirm int           `mapstructure:"confirm"` // how many, 1 to 100; default 1
	Timeout time.Duration `mapstructure:"timeout"` // how long they have for it, 1ms to 500ms; default 100ms
}

// Wait bounds the wait for a lock that another holds: either Tries attempts
// Every apart, or as many as fit UpTo. Tries of 1 does not wait at all.
type Wait struct {
	Tries int           `mapstructure:"tries"` // 1 to 1,000
	Every time.Duration `mapstructure:"every"` // 1ms to 1m; with kind fair at most 4s
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

// Backends: how the service behind the gate reads a request, and so what is
// refused because it may take it for another.
const (
	BackendStrict = "strict" // what any of the others may read differently
	BackendTomcat = "tomcat"
	BackendSpring = "spring"
	BackendPHP    = "php"
)

// What becomes of a body without a Content-Type where a rule reads JSON.
const (
	WithoutTypeAccept = "accept" // it is read as JSON
	WithoutTypeRefuse = "refuse"
)

// Rule is what to do with the requests that match it.
type Rule struct {
	Name    string `mapstructure:"name"` // unique, [a-z0-9][a-z0-9_-]{0,62}
	Match   Match  `mapstructure:"match"`
	Backend string `mapstructure:"backend"` // default that of the file
	// FrontControllers are the paths at which a backend that is strict or php chooses by
	// parameters what it runs. A request there that names an order, under no rule, is
	// refused. Default those of the file.
	FrontControllers []string `mapstructure:"front_controllers"`

	// JSONWithoutType says what becomes of a body without a Content-Type; of rules that read
	// an ID from JSON. Default refuse of backend strict, since some (Rack, CGI.pm) take such
	// a body for a form, and accept of others.
	JSONWithoutType string `mapstructure:"json_without_type"`

	Pass    bool    `mapstructure:"pass"`    // exempts what matches; excludes id, invalid, lookup, create and settle
	IDs     []ID    `mapstructure:"id"`      // at most 8, no two in one place; a mapping in the file is a list of one
	Invalid Reply   `mapstructure:"invalid"` // default 400; an empty body leaves it to the gate to name what is wrong
	Lookup  *Lookup `mapstructure:"lookup"`
	Create  *Create `mapstructure:"create"` // excludes settle and lookup
	Settle  *Settle `mapstructure:"settle"`
	Mode    string  `mapstructure:"mode"` // default enforce
}

// How the literal segments of a path are compared.
const (
	CaseSensitive   = "sensitive"
	CaseInsensitive = "insensitive"
)

// What becomes of a request to a rule's path under a method that no rule names.
const (
	OtherMethodsRefuse = "refuse"
	OtherMethodsPass   = "pass"
)

// Match selects requests. All of its conditions must hold.
type Match struct {
	Methods []string `mapstructure:"methods"` // upper case; at least one
	Path    string   `mapstructure:"path"`    // "/orders/{id}": segments of [A-Za-z0-9._~-] and {names}, no query
	// Query has parameters that the query must have, with their values: 1 to 128 letters,
	// digits, _ and -, both.
	Query        map[string]string `mapstructure:"query"`
	Case         string            `mapstructure:"case"`          // of the literal segments; default sensitive
	Host         string            `mapstructure:"host"`          // exact :authority without the port, lower case; default any
	OtherMethods string            `mapstructure:"other_methods"` // default refuse in a rule with settle, pass in others
}

// ID formats.
const (
	FormatDigits      = "digits"
	FormatUUID        = "uuid"
	FormatTimestamped = "timestamped" // digits, some of which are a date
	FormatSnowflake   = "snowflake"   // a number, the upper bits of which count milliseconds
	FormatPattern     = "pattern"
)

// How an ID is written in JSON.
const (
	JSONAny    = "any"
	JSONString = "string"
	JSONNumber = "number"
)

// ID says where the order ID stands in a request and what it looks like.
// Exactly one of the places Path, Query, Header, JSON, Form and Cookie is set.
//
// A create rule may do without: its one entry then has no place, and says with
// its format what the ID in the answer looks like. [Config.EnsureDefaults] gives
// it one that is left out. What a create learns has the format of the rule's
// first entry.
type ID struct {
	Path   string `mapstructure:"path"`   // the name of a {segment} of match.path
	Query  string `mapstructure:"query"`  // a parameter
	Header string `mapstructure:"header"` // in any case; [Config.EnsureDefaults] makes it lower
	JSON   string `mapstructure:"json"`   // dotted path of member names in the body
	Form   string `mapstructure:"form"`   // a field of an urlencoded body
	Cookie string `mapstructure:"cookie"`

	Optional bool   `mapstructure:"optional"`  // create rules only, the same in all entries: a request without any ID is fine
	JSONType string `mapstructure:"json_type"` // with json; default any
	List     bool   `mapstructure:"list"`      // with json, not in create rules: an array of IDs
	MaxList  int    `mapstructure:"max_list"`  // IDs in the array, 1 to 1,000, with list; default 100
	MaxBody  int    `mapstructure:"max_body"`  // bytes, 1 to 1,048,576, with json and form; default 65,536

	Format    string `mapstructure:"format"`     // default digits
	MinLength int    `mapstructure:"min_length"` // bytes, not with uuid; default 1
	MaxLength int    `mapstructure:"max_length"` // bytes, at most 256 for pattern and 64 for others; default 64 for pattern and 19 for others
	Pattern   string `mapstructure:"pattern"`    // RE2, matched against the whole ID; with format pattern
	Time      IDTime `mapstructure:"time"`       // with formats timestamped and snowflake
}

// IDTime says where an ID holds the time at which it was made: Layout and At
// are for the format timestamped, Epoch and Shift for snowflake. A layout is one
// of package time without anything between its parts: a year (2006 or 06), a day
// (01 and 02, or 002), and as much as there is of 15, 04 and 05.
type IDTime struct {
	Layout string `mapstructure:"layout"` // default 20060102150405
	At     int    `mapstructure:"at"`     // offset of the first digit of the date, in bytes; default 0
	Epoch  string `mapstructure:"epoch"`  // RFC 3339, what is counted from; no default
	Shift  int    `mapstructure:"shift"`  // bits below those that count milliseconds, 0 to 32; default 22
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
// ResponseJSON and ResponseHeader is set.
type Learn struct {
	ResponseJSON   string `mapstructure:"response_json"`   // dotted path of a field
	ResponseHeader string `mapstructure:"response_header"` // in any case; [Config.EnsureDefaults] makes it lower
	Pattern        string `mapstructure:"pattern"`         // RE2, looked for in that text; its one group is the ID; default all of the text
}

// Settle brackets the call with a lock.
type Settle struct {
	Lock        string        `mapstructure:"lock"`
	Limit       *Limit        `mapstructure:"limit"`       // nil: none
	Busy        Reply         `mapstructure:"busy"`        // default 409, Retry-After 1s
	Unavailable Reply         `mapstructure:"unavailable"` // Redis cannot be asked; default 503, Retry-After 1s
	MaxHold     time.Duration `mapstructure:"max_hold"`    // a call that takes longer is ended; 1s to 24h, default 10m

	// MaxInFlight bounds how many settlements the backend may have to work on, of all rules
	// together: those that were forwarded, and those that are held. 1 to 100,000, default
	// 100. MaxInFlightPerClient is the part of them that may be one client's; 1 to
	// MaxInFlight, default half. The more is taken, the less: see docs/locks-outcome.md.
	MaxInFlight          int `mapstructure:"max_in_flight"`
	MaxInFlightPerClient int `mapstructure:"max_in_flight_per_client"`
	// BackendWorkers is how many calls the backend works on at once, 1 to 100,000, and
	// BackendTimeout the longest that it works on one, up to 24h. Both or none: with them, a
	// hold that may be too short is refused.
	BackendWorkers int           `mapstructure:"backend_workers"`
	BackendTimeout time.Duration `mapstructure:"backend_timeout"`
}

// Limit bounds how many calls run at once that have an ID in common which is not
// the order's: that of a merchant, say.
type Limit struct {
	Lock string `mapstructure:"lock"` // of kind semaphore, and not the one that the order has
	// ID says where that ID is, as one of the rule's own does. Its name must not be
	// one that a backend may take for the order's.
	ID ID `mapstructure:"id"`
}

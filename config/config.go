// Package config reads ordergate's YAML file into one validated value.
//
// Start with [Load]. It rejects unknown and repeated keys, values of the wrong type or out of
// range, and undefined names. It reports all violations in one run, each with its YAML path
// and line. Package engine builds servers and filters from the value.
package config

import (
	"io/fs"
	"strconv"
	"time"
)

// Config is the whole file. The zero value is not usable. [Load] returns a complete and
// consistent value that nothing changes afterwards, so any goroutine may read it.
//
// The names of filters, sources, locks and rules are [a-z0-9][a-z0-9_-]{0,62}.
type Config struct {
	Backend string `mapstructure:"backend"` // of rules without one; default strict
	// FrontControllers are those of rules without any; default /index.php and /.
	FrontControllers []string `mapstructure:"front_controllers"`
	// Answer is that of rules without one; nil: the status tells.
	Answer *Answer `mapstructure:"answer"`

	Listen  Listen            `mapstructure:"listen"`
	Redis   *Redis            `mapstructure:"redis"` // nil when nothing in the file needs Redis
	Filters map[string]Filter `mapstructure:"filters"`
	Sources map[string]Source `mapstructure:"sources"`
	Locks   map[string]Lock   `mapstructure:"locks"`
	Rules   []Rule            `mapstructure:"rules"`
}

// Listen holds the addresses to serve on: "host:port" or "unix:/path". Port 0 takes a free
// port. An empty address is not served. A rule with lookup or dedup needs authz or http, and a rule
// with create or settle needs proc. No two addresses may overlap.
type Listen struct {
	Authz string `mapstructure:"authz"` // gRPC ext_authz; default 127.0.0.1:9191
	Proc  string `mapstructure:"proc"`  // gRPC ext_proc; default 127.0.0.1:9192
	HTTP  string `mapstructure:"http"`  // HTTP sub-requests of nginx, Traefik and Envoy; default empty
	Admin string `mapstructure:"admin"` // HTTP metrics and health; default 127.0.0.1:9194

	// The token of requests to the admin address that change something. Without it, operators
	// need no token, and services can neither add IDs nor delete stored answers (/v1/...).
	TokenFile string `mapstructure:"token_file"`
	TokenEnv  string `mapstructure:"token_env"`
	Token     Secret `mapstructure:"-" json:"-"` // the content of either, at least 16 bytes; "" without both

	// AdminHosts are the host names that requests to the admin address may have, besides IP
	// addresses and localhost.
	AdminHosts []string `mapstructure:"admin_hosts"`

	// TLS is for authz, proc and http on host:port; nil: none. Unless Insecure is set, these
	// addresses need TLS outside of loopback, and admin needs a token there.
	TLS      *ListenTLS `mapstructure:"tls"`
	Insecure bool       `mapstructure:"insecure"`

	SocketMode string `mapstructure:"socket_mode"` // of unix sockets, three octal digits; default "0660"
}

// FileMode returns SocketMode as a number; 0 if it is invalid.
func (l Listen) FileMode() fs.FileMode {
	mode, err := strconv.ParseUint(l.SocketMode, 8, 9)
	if err != nil {
		return 0
	}
	return fs.FileMode(mode)
}

// ListenTLS configures servers for TLS with client certificates. The files are PEM, and all
// three are required.
type ListenTLS struct {
	Cert string `mapstructure:"cert"` // our certificate, with its chain up to an authority
	Key  string `mapstructure:"key"`  // its private key
	CA   string `mapstructure:"ca"`   // authorities that sign the clients' certificates
	// Names are DNS names and URIs. A client's certificate must have one of them. Empty: any
	// certificate of the authorities is accepted.
	Names []string `mapstructure:"names"`
}

// Redis modes.
const (
	RedisSingle   = "single"
	RedisSentinel = "sentinel" // Sentinels name the primary, and replace it
	RedisCluster  = "cluster"
	RedisEmbedded = "embedded" // a Redis inside this process, for trials with one sidecar; its data ends with the process
)

// Redis says where the locks and the change logs live.
type Redis struct {
	Mode string `mapstructure:"mode"` // default single
	// Addresses are, by mode: of exactly one server (single; default 127.0.0.1:6379), of
	// Sentinels (sentinel), or of any nodes of the cluster, which name the others (cluster).
	// Mode embedded has none.
	Addresses    []string `mapstructure:"addresses"`
	Master       string   `mapstructure:"master"`        // the Sentinels' name of the primary, in mode sentinel; default mymaster
	Database     int      `mapstructure:"database"`      // 0 to 65535, default 0; in modes single and sentinel
	Username     string   `mapstructure:"username"`      // an ACL user; needs a password
	PasswordFile string   `mapstructure:"password_file"` // read at start, trailing line break removed
	PasswordEnv  string   `mapstructure:"password_env"`  // name of an environment variable

	// The same for the Sentinels, which have users of their own.
	SentinelUsername     string `mapstructure:"sentinel_username"`
	SentinelPasswordFile string `mapstructure:"sentinel_password_file"`
	SentinelPasswordEnv  string `mapstructure:"sentinel_password_env"`

	// Member identifies this instance. It stays the same after a restart, and no other
	// ordergate has it. At most 200 bytes, without #. Empty by default: package engine then
	// derives it from the host's name and a listener's address.
	Member string `mapstructure:"member"`

	TLS *TLS `mapstructure:"tls"` // nil: none. In mode sentinel also for the Sentinels

	// Password is the content of PasswordFile or PasswordEnv, and SentinelPassword likewise.
	// They are never printed.
	Password         string `mapstructure:"-" json:"-"`
	SentinelPassword string `mapstructure:"-" json:"-"`
}

// TLS configures the client for TLS with Redis. The zero value trusts the system's authorities
// and presents no certificate. The files are PEM.
type TLS struct {
	CA         string `mapstructure:"ca"`          // authorities that sign the servers' certificates; default the system's
	Cert       string `mapstructure:"cert"`        // our certificate, with its chain up to an authority; needs Key
	Key        string `mapstructure:"key"`         // its private key
	ServerName string `mapstructure:"server_name"` // expected in the servers' certificates; default the host of each address
}

// Filter kinds, layouts, segments, ways to expand, and freshness.
const (
	FilterLocal    = "local"        // a Bloom filter in memory
	FilterExact    = "exact"        // every ID, in memory: numbers only
	FilterBloom    = "redis-bloom"  // a filter of RedisBloom, shared by all instances
	FilterBitmap   = "redis-bitmap" // bits in any Redis, shared by all instances
	FilterRedisson = "redisson"     // an RBloomFilter, shared with Java services
	FilterLayered  = "layered"      // memory before one of the three in Redis

	CodecDefault = "default" // Kryo5, the default of Java services
	CodecString  = "string"  // StringCodec

	ElementsString = "string" // RBloomFilter<String>
	ElementsLong   = "long"   // RBloomFilter<Long>

	LayoutBlocked = "blocked" // the bits of an ID lie in one cache line
	LayoutClassic = "classic" // they lie anywhere: less memory, slower

	SegmentDay         = "day"
	SegmentFromID      = "id"      // the ID contains its day
	SegmentFromArrival = "arrival" // an ID belongs to the day on which it was read or learned
	OlderUnknown       = "unknown" // an ID of a dropped day passes
	OlderAbsent        = "absent"  // an ID of a dropped day is refused

	ExpandRebuild = "rebuild" // read everything again into a larger filter
	ExpandLayers  = "layers"  // add another layer

	FreshnessWindow = "window" // Absent is valid within a window after a read of the change log
	FreshnessNone   = "none"   // Absent is always valid: only if nothing else creates orders
)

// Filter is one set of order IDs.
type Filter struct {
	Kind              string   `mapstructure:"kind"`                // default local
	Capacity          uint64   `mapstructure:"capacity"`            // IDs, 1 to 10^11; default 1,000,000
	FalsePositiveRate float64  `mapstructure:"false_positive_rate"` // 1e-9 to 0.5; default 0.001
	Sources           []string `mapstructure:"sources"`             // names of sources, read at start
	// Parts are what an ID is unique within, such as a tenant: at most 4 names. The filter then
	// has IDs with them, in this order: tenant/id. Not of kind exact.
	Parts []string `mapstructure:"parts"`
	// Freshness is the condition for Absent; default a window of 500ms, or none in a file that
	// uses no Redis.
	Freshness Freshness `mapstructure:"freshness"`
	ChangeLog ChangeLog `mapstructure:"change_log"`

	// ShareLoad lets one instance read the sources when several start at once. The others
	// take its snapshot from Redis. Not for kinds in Redis; default true in a file that uses
	// Redis, if the filter has tables among its sources. EnsureDefaults makes it non-nil.
	ShareLoad *bool `mapstructure:"share_load"`
	// Reconcile compares the tables with the filter in the background; nil: it does not.
	Reconcile *Reconcile `mapstructure:"reconcile"`

	// StaleAfter bounds the time since the filter last read the change log to its end. After
	// it, the filter answers Unknown. 1s to 1h, default 5s.
	StaleAfter time.Duration `mapstructure:"stale_after"`
	// AlertFalsePositiveRate is the threshold of the measured false positive rate. Above it,
	// the filter raises an alert, and grows if it has Expand. 0 to 0.5, default 0: never.
	AlertFalsePositiveRate float64 `mapstructure:"alert_false_positive_rate"`
	// Verify is the share of refused lookups whose order is looked for in the tables, and the share
	// that goes on to the backend: "1/n", or off. Default [DefaultVerify]; off with segments whose
	// older orders are absent.
	Verify string `mapstructure:"verify"`

	Layout   string    `mapstructure:"layout"`   // of the bits in memory; default blocked
	Segments *Segments `mapstructure:"segments"` // nil: the filter keeps all orders
	Expand   *Expand   `mapstructure:"expand"`   // not of kinds exact and redisson; nil: beyond its capacity, more absent IDs pass
	Snapshot *Snapshot `mapstructure:"snapshot"` // of the part in memory; nil: none

	RedisKind string `mapstructure:"redis_kind"` // of kind layered: the kind of the part in Redis; default redis-bitmap
	KeyPrefix string `mapstructure:"key_prefix"` // of the keys of kinds in Redis; default "order:bloom:<name>"
	Shards    int    `mapstructure:"shards"`     // of the kinds in Redis, 1 to 16,384; default 1
	Codec     string `mapstructure:"codec"`      // of kind redisson; default default
	Elements  string `mapstructure:"elements"`   // of kind redisson; default string. Long is for codec default

	SecretFile string `mapstructure:"secret_file"` // keys the hashes; read at start, trailing line break removed
	SecretEnv  string `mapstructure:"secret_env"`  // name of an environment variable
	// Secret is the content of SecretFile or SecretEnv, at least 16 bytes; "" without both:
	// the filter then generates one.
	Secret Secret `mapstructure:"-" json:"-"`
}

// Freshness is the condition under which a filter answers Absent. A file has {window: 500ms},
// or a word: window (the default window) or none.
type Freshness struct {
	Mode string `mapstructure:"mode"` // window or none
	// Window is the time after a read of the change log was sent, during which Absent is
	// valid. The answer to a create may have to wait for this time. Of mode window, 100ms to
	// 10s; default [DefaultWindow].
	Window time.Duration `mapstructure:"window"`
}

// ChangeLog configures the list of new IDs in Redis. All instances of a deployment need the
// same values.
type ChangeLog struct {
	// Keep is the least number of entries that the log keeps, 10,000 to 10^9; 0: all. It
	// needs a table among the sources, which has the trimmed orders. The default is then
	// 100,000, except with segments from arrival: an ID that is read again loses its day.
	Keep int `mapstructure:"keep"`
	// Lease is the time without a renewal after which a member is no longer trusted. It also
	// bounds the wait of a create's answer if Redis does not take the ID. 200ms to 10s,
	// default 2s.
	Lease time.Duration `mapstructure:"lease"`
	// Expel is the time without a renewal after which a member is expelled, 10s to 24h;
	// default 5m.
	Expel time.Duration `mapstructure:"expel"`
}

// Reconcile compares the tables among a filter's sources with the filter.
type Reconcile struct {
	Every  time.Duration `mapstructure:"every"`  // interval between passes over all rows, 1m to 720h; default 24h
	Sample int           `mapstructure:"sample"` // newest rows compared each minute, 0 to 100,000; default 1000
	Rate   int           `mapstructure:"rate"`   // rows a second of a pass, 1 to 10^6; default 2000
}

// InRedis returns the kind of the part in Redis; "": the filter is in memory only.
func (f Filter) InRedis() string {
	switch f.Kind {
	case FilterBloom, FilterBitmap, FilterRedisson:
		return f.Kind
	case FilterLayered:
		return f.RedisKind
	}
	return ""
}

// Snapshot is a file that the filter is written to, and that a restart reads.
type Snapshot struct {
	Path  string        `mapstructure:"path"`  // no default; without a secret in the configuration, a file beside it holds one
	Every time.Duration `mapstructure:"every"` // 1s to 24h, default 10m
}

// Segments makes a filter drop old orders.
type Segments struct {
	By    string `mapstructure:"by"`    // day, of UTC; default
	Keep  int    `mapstructure:"keep"`  // days, today included: 1 to 3,660, no default
	From  string `mapstructure:"from"`  // default id
	Older string `mapstructure:"older"` // default unknown; must be absent with from arrival
}

// Expand makes a filter grow while it is in use.
type Expand struct {
	AtFill float64 `mapstructure:"at_fill"` // share of the capacity: 0.1 to 1, default 0.8
	By     float64 `mapstructure:"by"`      // 1.1 to 16, default 1.5
	How    string  `mapstructure:"how"`     // default rebuild with sources and without segments, else layers
	Max    uint64  `mapstructure:"max"`     // the largest capacity, in IDs; at least the capacity, default 16 times it
}

// Kinds of sources, and how they are followed.
const (
	SourceCSV      = "csv"      // a file of IDs
	SourceMySQL    = "mysql"    // a table of MySQL or MariaDB
	SourcePostgres = "postgres" // a table of PostgreSQL

	FollowNone    = "none"    // orders are created through ordergate only
	FollowPoll    = "poll"    // ordergate reads the table's new rows at intervals
	FollowBinlog  = "binlog"  // of kind mysql: as a replica
	FollowLogical = "logical" // of kind postgres: by logical replication

	OnBadFail = "fail" // a row without a usable ID ends the reading
	OnBadSkip = "skip" // the row is skipped, counted and logged
)

// Source has order IDs to read: a file or a table.
type Source struct {
	Kind string `mapstructure:"kind"` // no default; "mariadb" and "postgresql" are other names of the two
	Path string `mapstructure:"path"` // csv: one ID a line

	// The other keys are for tables. The data source name contains a password, so it comes
	// from the environment or a file.
	DSNEnv   string `mapstructure:"dsn_env"`
	DSNFile  string `mapstructure:"dsn_file"`
	Table    string `mapstructure:"table"`     // or schema.table
	IDColumn string `mapstructure:"id_column"` // no default
	// PartColumns maps the parts of the filters' IDs to their columns.
	PartColumns  map[string]string `mapstructure:"part_columns"`
	CursorColumn string            `mapstructure:"cursor_column"` // indexed, and greater for later rows; default the ID column
	Ascending    bool              `mapstructure:"ascending"`     // later rows have greater cursors, but the database does not generate them (times, Snowflakes, ULIDs)
	Batch        int               `mapstructure:"batch"`         // rows a query, 10 to 100,000; default 10,000
	Pause        time.Duration     `mapstructure:"pause"`         // after each batch, up to 1m; default 0
	MaxRate      int               `mapstructure:"max_rate"`      // rows a second, 0 to 10^7; default 0: no limit
	OnBad        string            `mapstructure:"on_bad"`        // default fail
	Overlap      time.Duration     `mapstructure:"overlap"`       // the longest transaction that creates an order, 1s to 24h; default 1m
	Follow       string            `mapstructure:"follow"`        // default none
	Every        time.Duration     `mapstructure:"every"`         // of follow poll: 100ms to 1h, default 1s
	Grace        time.Duration     `mapstructure:"grace"`         // an ID younger than this is never absent; 0 to 24h, default 0; all IDs must contain their time, to the second
	ServerID     uint32            `mapstructure:"server_id"`     // of follow binlog: unlike every other replica's; default 0: random
	Slot         string            `mapstructure:"slot"`          // of follow logical; default "ordergate_<source>"
	Publication  string            `mapstructure:"publication"`   // of follow logical; default "ordergate_<source>"

	// DSN is the content of the file or the variable.
	DSN Secret `mapstructure:"-" json:"-"`
}

// Live reports whether the source is a table, which has each order as soon as it exists.
func (s Source) Live() bool { return s.Kind == SourceMySQL || s.Kind == SourcePostgres }

// SendsChanges reports whether the database sends the changes of the source's table as they are
// committed.
func (s Source) SendsChanges() bool { return s.Follow == FollowBinlog || s.Follow == FollowLogical }

// IsFollowed reports whether a filter has tables, and each sends its changes as they are committed.
func (c *Config) IsFollowed(filter string) bool {
	followed := false
	for _, name := range c.Filters[filter].Sources {
		switch source := c.Sources[name]; {
		case !source.Live():
		case source.SendsChanges():
			followed = true
		default:
			return false
		}
	}
	return followed
}

// Lock kinds and formats.
const (
	LockExclusive = "exclusive" // one holder
	LockFair      = "fair"      // one holder, in the order of arrival
	LockRead      = "read"      // shared with other readers; excludes a lock of kind write with the same key
	LockWrite     = "write"     // exclusive; excludes locks of kind read with the same key
	LockQuorum    = "quorum"    // exclusive, held on most of several servers
	LockSemaphore = "semaphore" // at most Permits holders

	FormatRedisson = "redisson" // Redisson's
	FormatString   = "string"   // SET key owner NX PX, for kinds exclusive and quorum
)

// ObservedSuffix ends the keys of the locks that a rule in mode observe takes. Such a rule
// measures how often its lock would be busy, and must not exclude enforced settlements.
const ObservedSuffix = ":observe"

// Lock is one kind of per-order lock.
type Lock struct {
	Kind             string        `mapstructure:"kind"`                // default exclusive
	Format           string        `mapstructure:"format"`              // default redisson
	Key              string        `mapstructure:"key"`                 // Redis key with {id} in it, once, and each {part} of the rules' IDs; default "order:lock:{id}"
	Permits          int           `mapstructure:"permits"`             // of kind semaphore: 1 to 1,000,000, no default
	Quorum           *Quorum       `mapstructure:"quorum"`              // of kind quorum; otherwise nil
	Replicas         *Replicas     `mapstructure:"replicas"`            // nil: a grant needs the primary only
	Lease            time.Duration `mapstructure:"lease"`               // 1s to 1h, renewed at a third; default 30s
	Wait             Wait          `mapstructure:"wait"`                // default 3 tries, 100ms apart
	MaxWaitersPerKey int           `mapstructure:"max_waiters_per_key"` // 0 to 100,000 in this process; default 100
	OnUnknownOutcome UnknownPolicy `mapstructure:"on_unknown_outcome"`
	// KeepFence is how long Redis keeps the last fence of a lock, and the counters of a
	// semaphore: 24h to 87600h (ten years); 0: for ever. Default 0 for kind exclusive in
	// format redisson, because Java continues counting from it; otherwise 24h. Of a lock of
	// settle.by: the longer one of lease and hold.
	KeepFence time.Duration `mapstructure:"keep_fence"`

	SecretFile string `mapstructure:"secret_file"` // keys the hash in the key of a lock of settle.by; as that of a filter
	SecretEnv  string `mapstructure:"secret_env"`  // name of an environment variable
	// Secret is the content of SecretFile or SecretEnv, at least 16 bytes; "" without both.
	Secret Secret `mapstructure:"-" json:"-"`
}

// Quorum names the servers of a lock of kind quorum. They are single servers, independent of
// each other and of that of the section redis. The user, the password and TLS are those of the
// section redis.
type Quorum struct {
	Addresses []string `mapstructure:"addresses"` // an odd number of at least 3, each its own server
}

// Replicas makes replicas confirm each grant. A failover is then unlikely to lose a lock, but
// still can. Not with mode embedded, and not for kind quorum.
type Replicas struct {
	Confirm int           `mapstructure:"confirm"` // number of replicas, 1 to 100; default 1
	Timeout time.Duration `mapstructure:"timeout"` // 1ms to 500ms; default 100ms
}

// Wait bounds the wait for a lock that another holds: Tries attempts at intervals of Every, or
// as many as fit UpTo. Tries of 1 does not wait.
type Wait struct {
	Tries int           `mapstructure:"tries"` // 1 to 1,000
	Every time.Duration `mapstructure:"every"` // 1ms to 1m; with kind fair at most 4s
	UpTo  time.Duration `mapstructure:"up_to"` // 1ms to 10m; excludes the other two
}

// UnknownPolicy is for a lease whose call ended with an unknown outcome: the backend may still
// be at work.
type UnknownPolicy struct {
	Hold time.Duration `mapstructure:"hold"` // 1s to 24h; default the lock's lease
}

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
	MaxBody  int    `mapstructure:"max_body"`  // bytes, 1 to 1,048,576, with json and form; default 65,536

	Format    string `mapstructure:"format"`     // default digits
	MinLength int    `mapstructure:"min_length"` // bytes, not with uuid; default 1
	MaxLength int    `mapstructure:"max_length"` // bytes, at most 256 for pattern and 64 for others; default 64 for pattern and 19 for others
	Max       IDMax  `mapstructure:"max"`        // the largest number, not with uuid and pattern; default int64, or none with a max_length over 19
	Pattern   string `mapstructure:"pattern"`    // RE2, matched against the whole ID; with format pattern
	Time      IDTime `mapstructure:"time"`       // with formats timestamped and snowflake
}

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
	// flight: see docs/locks-outcome.md.
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

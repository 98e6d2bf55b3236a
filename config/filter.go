package config

import (
	"time"
)

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

// RereadDSN returns a function that reads the data source name again from its file, see
// [Redis.RereadPassword].
func (s Source) RereadDSN() func() string { return rereadSecret(s.DSNFile, string(s.DSN)) }

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

package config

import "time"

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

	ElementsLong = "long" // RBloomFilter<Long>

	LayoutBlocked = "blocked" // the bits of an ID lie in one cache line
	LayoutClassic = "classic" // they lie anywhere: less memory, slower

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
	// Kind is what the filter is: Bloom filters in memory (local) or in Redis, layered memory before
	// Redis, or numbers that are never wrong (exact).
	Kind string `mapstructure:"kind" default:"local" oneof:"local exact redis-bloom redis-bitmap redisson layered"`
	// Capacity is the number of IDs that the filter is made for, of all segments together. Beyond it
	// nothing is lost, but more absent IDs pass. At ten bits an ID, the most is a terabit.
	Capacity uint64 `mapstructure:"capacity" default:"1_000_000" min:"1" max:"100_000_000_000"`
	// FalsePositiveRate is the share of absent IDs that pass when the filter is full.
	FalsePositiveRate float64 `mapstructure:"false_positive_rate" default:"0.001" min:"1e-9" max:"0.5"`
	// Sources are the names of sources, read at start; for a filter in Redis only where it is not
	// whole. A filter of kind redisson without any is filled by others.
	Sources []string `mapstructure:"sources" of:"sources" twice:"name a source once"`
	// Parts are what an ID is unique within, such as a tenant: at most 4 names. The filter then
	// has IDs with them, in this order: tenant/id.
	Parts []string `mapstructure:"parts" form:"part" only:"kind=local,redis-bloom,redis-bitmap,redisson,layered" items:"4 parts" twice:"name a part once" empty:"name a part of the IDs, such as tenant, or remove it"`
	// Freshness is the condition for Absent; default a window of 500ms, or none in a file that
	// uses no Redis.
	Freshness Freshness `mapstructure:"freshness"`
	// ChangeLog is the list of new IDs in Redis. All instances need the same.
	ChangeLog ChangeLog `mapstructure:"change_log"`

	// ShareLoad lets one instance read the sources when several start at once. The others
	// take its snapshot from Redis. Not for kinds in Redis; default true in a file that uses
	// Redis, if the filter has tables among its sources.
	ShareLoad *bool `mapstructure:"share_load"`
	// Reconcile compares the tables with the filter in the background.
	Reconcile *Reconcile `mapstructure:"reconcile"`

	// StaleAfter bounds the time since the filter last read the change log to its end. After
	// it, the filter answers Unknown.
	StaleAfter time.Duration `mapstructure:"stale_after" default:"5s" min:"1s" max:"1h"`
	// AlertFalsePositiveRate is the threshold of the measured false positive rate. Above it,
	// the filter raises an alert, and grows if it has Expand; 0: never.
	AlertFalsePositiveRate float64 `mapstructure:"alert_false_positive_rate" default:"0" min:"0" max:"0.5"`
	// Verify is the share of refused lookups whose order is looked for in the tables, and the share
	// that goes on to the backend: "1/n", or off. Default 1/10000; off with segments whose
	// older orders are absent.
	Verify string `mapstructure:"verify" form:"share"`

	// Layout is where the bits of an ID lie: in one cache line (blocked) or anywhere, with less memory.
	Layout   string    `mapstructure:"layout" default:"blocked" oneof:"blocked classic" only:"kind=local,layered"`
	Segments *Segments `mapstructure:"segments"`                                                  // makes the filter drop old orders
	Expand   *Expand   `mapstructure:"expand" only:"kind=local,redis-bloom,redis-bitmap,layered"` // makes the filter grow. Without it, more absent IDs pass beyond the capacity
	Snapshot *Snapshot `mapstructure:"snapshot" only:"kind=local,exact,layered"`                  // file of the part in memory, which a restart reads

	// RedisKind is the kind of the part in Redis.
	RedisKind string `mapstructure:"redis_kind" default:"redis-bitmap" oneof:"redis-bloom redis-bitmap redisson" only:"kind=layered"`
	// KeyPrefix begins the keys of kinds in Redis, without braces; default order:bloom:NAME. Of kind
	// redisson, it is the name for getBloomFilter.
	KeyPrefix string `mapstructure:"key_prefix" form:"key_prefix" empty:"give the prefix of the keys in Redis"`
	// Shards are the parts of a filter in Redis that is yet to be made, each in a slot of a cluster,
	// but of kind redisson; default 1. ordergate check prints the least number.
	Shards int `mapstructure:"shards" min:"1" max:"16384"`
	// Codec is how the Java services write: default is Kryo5, string StringCodec.
	Codec string `mapstructure:"codec" default:"default" oneof:"default string" only:"kind=redisson redis_kind=redisson"`
	// Elements is the type of their RBloomFilter; long is for codec default. IDs that are no Long are
	// strings in it.
	Elements string `mapstructure:"elements" default:"string" oneof:"string long" only:"kind=redisson redis_kind=redisson"`

	SecretFile string `mapstructure:"secret_file"`                  // keys the hashes; read at start, trailing line break removed
	SecretEnv  string `mapstructure:"secret_env" not:"secret_file"` // name of an environment variable
	// Secret is the content of SecretFile or SecretEnv, at least 16 bytes; "" without both:
	// the filter then generates one.
	Secret Secret `mapstructure:"-" secret:"secret" json:"-"`
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
	// bounds the wait of a create's answer if Redis does not take the ID. docs/freshness.pml
	// models both times.
	Lease time.Duration `mapstructure:"lease" default:"2s" min:"200ms" max:"10s"`
	// Expel is the time without a renewal after which a member is expelled. Until then nothing is
	// absent, unless it comes back.
	Expel time.Duration `mapstructure:"expel" default:"5m" min:"10s" max:"24h"`
}

// Reconcile compares the tables among a filter's sources with the filter.
type Reconcile struct {
	// Every is the interval between passes over all rows.
	Every time.Duration `mapstructure:"every" default:"24h" min:"1m" max:"720h"`
	// Sample is how many of the newest rows are compared each minute.
	Sample int `mapstructure:"sample" default:"1000" min:"0" max:"100000"`
	// Rate is how many rows a second a pass reads.
	Rate int `mapstructure:"rate" default:"2000" min:"1" max:"1000000"`
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
	// Path is the file, one for each process and filter, with room for two. Without a secret in the
	// configuration, a file beside it holds one.
	Path string `mapstructure:"path" need:"the path of the file to write"`
	// Every is the interval between writes. The file is also written once the sources have been read,
	// and at the end.
	Every time.Duration `mapstructure:"every" default:"10m" min:"1s" max:"24h"`
}

// Segments makes a filter drop old orders.
type Segments struct {
	// By is the unit of time, a day of UTC.
	By string `mapstructure:"by" default:"day" oneof:"day"`
	// Keep is how many days the filter keeps, today included. One more is kept, for clocks and time
	// zones that are behind.
	Keep int `mapstructure:"keep" need:"the number of days to keep" min:"1" max:"3660"`
	// From is where the day comes from: the ID itself (format timestamped or snowflake), or the day on
	// which the ID was learned or read, after a restart anew unless there is a snapshot.
	From string `mapstructure:"from" default:"id" oneof:"id arrival"`
	// Older is the answer for an ID of a dropped day; with from arrival it must be absent.
	Older string `mapstructure:"older" default:"unknown" oneof:"unknown absent"`
}

// Expand makes a filter grow while it is in use.
type Expand struct {
	// AtFill is the share of the capacity at which the filter grows.
	AtFill float64 `mapstructure:"at_fill" default:"0.8" min:"0.1" max:"1"`
	// By is the factor of a growth.
	By float64 `mapstructure:"by" default:"1.5" min:"1.1" max:"16"`
	// How is the way to grow; default rebuild with sources and without segments, else layers.
	How string `mapstructure:"how" oneof:"rebuild layers"`
	// Max is the largest capacity, in IDs, of all segments together; at least the capacity, default 16
	// times it. Beyond it more absent IDs pass, and the log and /readyz report it.
	Max uint64 `mapstructure:"max"`
}

// Kinds of sources, and how they are followed.
const (
	SourceCSV      = "csv"      // a file of IDs
	SourceMySQL    = "mysql"    // a table of MySQL or MariaDB
	SourcePostgres = "postgres" // a table of PostgreSQL
	SourceKafka    = "kafka"    // a topic with new orders

	FeedCanal    = "canal-json" // Canal's flat messages
	FeedDebezium = "debezium"   // with or without the schema
	FeedJSON     = "json"       // an object with the ID

	FollowNone    = "none"    // orders are created through ordergate only
	FollowPoll    = "poll"    // ordergate reads the table's new rows at intervals
	FollowBinlog  = "binlog"  // of kind mysql: as a replica
	FollowLogical = "logical" // of kind postgres: by logical replication

	OnBadFail = "fail" // a row without a usable ID ends the reading
	OnBadSkip = "skip" // the row is skipped, counted and logged
)

// Source has order IDs to read: a file or a table.
type Source struct {
	// Kind is a file (csv), a database, or a topic (kafka). Mariadb and postgresql are other names of mysql and postgres.
	Kind string `mapstructure:"kind" need:"the kind of source: csv, mysql, postgres or kafka" oneof:"csv mysql postgres kafka" alias:"mariadb=mysql postgresql=postgres"`
	// Path is the file, with one ID a line.
	Path string `mapstructure:"path" only:"kind=csv" need:"the path of a file with one ID a line"`

	// DSNEnv is the environment variable with the data source name, which contains a password.
	DSNEnv string `mapstructure:"dsn_env" not:"dsn_file" only:"kind=mysql,postgres"`
	// DSNFile is the file with the data source name.
	DSNFile string `mapstructure:"dsn_file" only:"kind=mysql,postgres"`
	// Table is the name of the table, or schema.table.
	Table string `mapstructure:"table" only:"kind=mysql,postgres,kafka"`
	// IDColumn is the column with the order IDs.
	IDColumn string `mapstructure:"id_column" only:"kind=mysql,postgres" need:"the name of the column with the order IDs"`
	// PartColumns maps the parts of the filters' IDs to their columns.
	PartColumns map[string]string `mapstructure:"part_columns" empty:"give a part and its column, such as {tenant: tenant_id}, or remove it" only:"kind=mysql,postgres,kafka"`
	// CursorColumn is indexed, and greater for later rows; default the ID column.
	CursorColumn string `mapstructure:"cursor_column" only:"kind=mysql,postgres"`
	// Ascending means that later rows have greater cursors, but the database does not generate
	// them (times, Snowflakes, ULIDs). Without it, catching up reads the whole table.
	Ascending bool `mapstructure:"ascending" only:"kind=mysql,postgres"`
	// Batch is the number of rows a query. Smaller ones need almost a query for each order.
	Batch int `mapstructure:"batch" default:"10000" min:"10" max:"100000" only:"kind=mysql,postgres"`
	// Pause is the time after each batch.
	Pause time.Duration `mapstructure:"pause" default:"0s" min:"0s" max:"1m" only:"kind=mysql,postgres"`
	// MaxRate is the number of rows a second; 0: no limit.
	MaxRate int `mapstructure:"max_rate" default:"0" min:"0" max:"10000000" only:"kind=mysql,postgres"`
	// OnBad decides about a row without a usable ID: fail ends the reading, and nothing counts as
	// absent; skip counts and logs the row.
	OnBad string `mapstructure:"on_bad" default:"fail" oneof:"fail skip" only:"kind=mysql,postgres"`
	// Overlap is the longest transaction that creates an order.
	Overlap time.Duration `mapstructure:"overlap" default:"1m" min:"1s" max:"24h" only:"kind=mysql,postgres"`
	// Follow is how ordergate learns of orders that are created elsewhere; none: there are none.
	Follow string `mapstructure:"follow" default:"none" oneof:"none poll binlog@mysql logical@postgres" only:"kind=mysql,postgres"`
	// Every is the interval between polls.
	Every time.Duration `mapstructure:"every" default:"1s" min:"100ms" max:"1h" only:"follow=poll"`
	// Grace is the age below which an ID is never absent. All IDs must contain their time, to the
	// second.
	Grace time.Duration `mapstructure:"grace" default:"0s" min:"0s" max:"24h" only:"kind=mysql,postgres"`
	// ServerID is unlike that of every other replica and the server's own; default random. With it,
	// the source is for one filter.
	ServerID uint32 `mapstructure:"server_id" min:"1" max:"4294967295" only:"follow=binlog"`
	// Slot is the replication slot, of one deployment; default ordergate_SOURCE. The source is for one
	// filter.
	Slot string `mapstructure:"slot" only:"follow=logical"`
	// Publication is that of the table; default ordergate_SOURCE.
	Publication string `mapstructure:"publication" form:"publication" only:"follow=logical"`

	// Brokers are the addresses, host:port, at which ordergate finds the servers of the topic.
	Brokers []string `mapstructure:"brokers" form:"broker" only:"kind=kafka" need:"the address of one Kafka server or more, such as [10.0.0.1:9092]"`
	// Topic has the messages, in all of its partitions.
	Topic string `mapstructure:"topic" form:"topic" only:"kind=kafka" need:"the name of the topic"`
	// Format is that of the messages: rows as Canal or Debezium write them, or any JSON object.
	Format string `mapstructure:"format" only:"kind=kafka" need:"the format of the messages: canal-json, debezium or json" oneof:"canal-json debezium json"`
	// ID is the column with the order IDs, or in format json the dotted path of their member.
	ID string `mapstructure:"id" form:"feed_path" only:"kind=kafka" need:"the column with the order IDs, or the path of the member in format json"`
	// TLS is that of the connections to the brokers.
	TLS *TLS `mapstructure:"tls" only:"kind=kafka"`
	// Username is that of SASL; needs a password.
	Username string `mapstructure:"username" only:"kind=kafka"`
	// PasswordFile is read at start and for each new connection, trailing line break removed.
	PasswordFile string `mapstructure:"password_file" only:"username"`
	// PasswordEnv is the name of an environment variable.
	PasswordEnv string `mapstructure:"password_env" not:"password_file" only:"username"`
	// Mechanism is that of SASL.
	Mechanism string `mapstructure:"mechanism" default:"plain" oneof:"plain scram-sha-256 scram-sha-512" only:"username"`

	// DSN is the content of the file or the variable.
	DSN Secret `mapstructure:"-" secret:"dsn" json:"-"`
	// Password is the content of PasswordFile or PasswordEnv.
	Password Secret `mapstructure:"-" secret:"password" json:"-"`
}

// Feed reports whether the source is a topic, which adds orders while ordergate runs. It is never all of
// them: what a topic lacks, no reader of it can see.
func (s Source) Feed() bool { return s.Kind == SourceKafka }

// RereadPassword returns a function that reads the password again from its file, see
// [Redis.RereadPassword].
func (s Source) RereadPassword() func() string {
	return rereadSecret(s.PasswordFile, string(s.Password))
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

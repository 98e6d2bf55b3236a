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
	// Backend is that of rules without one.
	Backend string `mapstructure:"backend" default:"strict" oneof:"strict tomcat spring php"`
	// FrontControllers are those of rules without any, with backend strict and php; default
	// /index.php and /.
	FrontControllers []string `mapstructure:"front_controllers" form:"script"`
	// Answer is that of rules without one. Without it, the status of an answer counts.
	Answer *Answer `mapstructure:"answer"`

	// Listen has the addresses to serve on.
	Listen Listen `mapstructure:"listen" change:"restart"`
	// Redis is where the locks and the change logs are. A file that needs none has none.
	Redis *Redis `mapstructure:"redis" change:"restart"`
	// Filters are the sets of order IDs.
	Filters map[string]Filter `mapstructure:"filters" form:"name" change:"restart"`
	// Sources are where filters read IDs from.
	Sources map[string]Source `mapstructure:"sources" form:"name" change:"restart"`
	// Locks are those of orders.
	Locks map[string]Lock `mapstructure:"locks" form:"name"`
	// Rules are looked at in the order of the file. The first that matches a request counts.
	Rules []Rule `mapstructure:"rules"`
	// Log is what ordergate logs besides its own log.
	Log Log `mapstructure:"log"`
}

// Listen holds the addresses to serve on: "host:port" or "unix:/path". Port 0 takes a free
// port. An empty address is not served. A rule with lookup or dedup needs authz or http, and a rule
// with create or settle needs proc. No two addresses may overlap.
type Listen struct {
	Authz string `mapstructure:"authz" form:"address" default:"127.0.0.1:9191"` // gRPC ext_authz
	Proc  string `mapstructure:"proc" form:"address" default:"127.0.0.1:9192"`  // gRPC ext_proc
	HTTP  string `mapstructure:"http" form:"address"`                           // sub-requests of nginx, Traefik and Envoy
	Admin string `mapstructure:"admin" form:"address" default:"127.0.0.1:9194"` // HTTP metrics and health

	// TokenFile has the token of requests to the admin address that change something. Without a
	// token, operators need none, and services can neither add IDs nor delete stored answers
	// (/v1/...). It has at least 16 bytes, and the commands send it.
	TokenFile string `mapstructure:"token_file"`
	// TokenEnv is the environment variable that has the token.
	TokenEnv string `mapstructure:"token_env" not:"token_file"`
	Token    Secret `mapstructure:"-" secret:"token" json:"-"` // the content of either, at least 16 bytes; "" without both

	// AdminHosts are the host names that requests to the admin address may have, besides IP
	// addresses and localhost.
	AdminHosts []string `mapstructure:"admin_hosts" form:"host"`

	// TLS is for authz, proc and http on host:port. Outside of loopback, these addresses need it.
	TLS *ListenTLS `mapstructure:"tls"`
	// Insecure allows addresses outside of loopback without TLS, and admin without a token.
	Insecure bool `mapstructure:"insecure"`

	// Debug serves the profiles of Go's runtime at admin, below /debug/pprof/, with the token, or
	// without one to this machine.
	Debug bool `mapstructure:"debug"`

	SocketMode string `mapstructure:"socket_mode" form:"mode" default:"0660"` // of unix sockets, three octal digits. Only users who may write to a socket can connect to it
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
	// Cert is the file of our certificate, with its chain up to an authority.
	Cert string `mapstructure:"cert" need:"the file of the certificate"`
	// Key is the file of its private key.
	Key string `mapstructure:"key" need:"the file of its private key"`
	// CA is the file of the authorities that sign the clients' certificates.
	CA string `mapstructure:"ca" need:"the file of the authorities that sign the clients' certificates"`
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
	// Mode is what serves Redis. Embedded is in this process, for trials with one ordergate.
	Mode string `mapstructure:"mode" default:"single" oneof:"single sentinel cluster embedded"`
	// Addresses are those of exactly one server (mode single; default 127.0.0.1:6379), of
	// Sentinels, or of any nodes of a cluster, which name the others.
	Addresses []string `mapstructure:"addresses" form:"server" twice:"name an address once" only:"mode=single,sentinel,cluster"`
	// Master is the Sentinels' name of the primary.
	Master string `mapstructure:"master" form:"master" default:"mymaster" only:"mode=sentinel" need:"the Sentinels' name of the master"`
	// Database is the number of the database. A user needs +select for another one than 0.
	Database int `mapstructure:"database" default:"0" min:"0" max:"65535" only:"mode=single,sentinel"`
	// Username is that of an ACL user; needs a password.
	Username string `mapstructure:"username" only:"mode=single,sentinel,cluster"`
	// PasswordFile is read at start and for each new connection, trailing line break removed.
	PasswordFile string `mapstructure:"password_file" only:"mode=single,sentinel,cluster"`
	// PasswordEnv is the name of an environment variable.
	PasswordEnv string `mapstructure:"password_env" not:"password_file" only:"mode=single,sentinel,cluster"`

	// SentinelUsername is for the Sentinels, which have users of their own.
	SentinelUsername string `mapstructure:"sentinel_username" only:"mode=sentinel"`
	// SentinelPasswordFile has their password.
	SentinelPasswordFile string `mapstructure:"sentinel_password_file" only:"mode=sentinel"`
	// SentinelPasswordEnv is the environment variable with it.
	SentinelPasswordEnv string `mapstructure:"sentinel_password_env" not:"sentinel_password_file" only:"mode=sentinel"`

	// Member identifies this instance. It stays the same after a restart, and no other
	// ordergate has it. At most 200 bytes, without #; default the host's name and the address
	// of proc or authz, inside Envoy of admin. Where several have one file, set
	// ORDERGATE_REDIS_MEMBER.
	Member string `mapstructure:"member" form:"member" empty:"give this ordergate a name of its own, or remove it"`

	TLS *TLS `mapstructure:"tls" only:"mode=single,sentinel,cluster"` // with the servers, in mode sentinel also with the Sentinels. {} trusts the system's authorities

	// Password is the content of PasswordFile or PasswordEnv, and SentinelPassword likewise.
	// They are never printed.
	Password         Secret `mapstructure:"-" secret:"password" json:"-"`
	SentinelPassword Secret `mapstructure:"-" secret:"sentinel_password" json:"-"`
}

// TLS configures the client for TLS with Redis. The zero value trusts the system's authorities
// and presents no certificate. The files are PEM.
type TLS struct {
	CA         string `mapstructure:"ca"`                               // authorities that sign the servers' certificates; default the system's
	Cert       string `mapstructure:"cert" with:"key, its private key"` // our certificate, with its chain up to an authority; needs Key
	Key        string `mapstructure:"key" with:"cert, the certificate"` // its private key
	ServerName string `mapstructure:"server_name" form:"server_name"`   // expected in the servers' certificates; default the host of each address
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
	// Kind is who may hold the lock at once. Fair is in the order of arrival, and quorum on most of
	// several servers.
	Kind string `mapstructure:"kind" default:"exclusive" oneof:"exclusive fair read write quorum semaphore" change:"lock"`
	// Format is how the lock is stored: redisson excludes Java's RLock, string a SET NX PX.
	Format string `mapstructure:"format" default:"redisson" oneof:"redisson string@exclusive,quorum" change:"lock"`
	// Key is the Redis key, with {id} in it once, and with each {part} of the rules' IDs: at most 256
	// bytes, without spaces. No other lock's begins with its text before the first of these,
	// except one of kind read and one of kind write with the same key. In a cluster, other braces have to be a hash tag, as in
	// order:lock:{{id}}, around the ID where a pattern admits a colon.
	Key string `mapstructure:"key" form:"lock" default:"order:lock:{id}" change:"lock"`
	// Permits is how many may hold the lock at once.
	Permits int `mapstructure:"permits" need:"the number of calls that may hold the lock at once" only:"kind=semaphore" min:"1" max:"1000000"`
	// Quorum names the servers, most of which must grant the lock.
	Quorum *Quorum `mapstructure:"quorum" need:"it addresses, an odd number of at least 3" only:"kind=quorum" change:"lock"`
	// Replicas must confirm a grant. Without it, a grant needs the primary only.
	Replicas *Replicas `mapstructure:"replicas" only:"kind=exclusive,fair,read,write,semaphore"`
	// Lease is how long the lock lasts without a renewal; renewed at a third of it. Two thirds or more
	// protect a call whose ordergate was killed.
	Lease time.Duration `mapstructure:"lease" default:"30s" min:"1s" max:"1h"`
	// Wait is how a caller waits for the lock; default 3 tries, 100ms apart.
	Wait Wait `mapstructure:"wait"`
	// MaxWaitersPerKey bounds the waiters for one key in this process.
	MaxWaitersPerKey int `mapstructure:"max_waiters_per_key" default:"100" min:"0" max:"100000"`
	// OnUnknownOutcome is for a call that ended with an unknown outcome.
	OnUnknownOutcome UnknownPolicy `mapstructure:"on_unknown_outcome"`
	// KeepFence is how long Redis keeps the last fence of a lock, and the counters of a
	// semaphore: 24h to 87600h (ten years), default 24h; 0: for ever, so that Java continues
	// counting from it. Of a lock of settle.by: the longer one of lease and hold.
	KeepFence time.Duration `mapstructure:"keep_fence"`

	SecretFile string `mapstructure:"secret_file" change:"lock"`                  // keys the hash in the key of a lock of settle.by; as that of a filter
	SecretEnv  string `mapstructure:"secret_env" not:"secret_file" change:"lock"` // name of an environment variable
	// Secret is the content of SecretFile or SecretEnv, at least 16 bytes; "" without both.
	Secret Secret `mapstructure:"-" secret:"secret" change:"lock" json:"-"`
}

// Quorum names the servers of a lock of kind quorum. They are single servers, independent of
// each other and of that of the section redis. The user, the password and TLS are those of the
// section redis.
type Quorum struct {
	Addresses []string `mapstructure:"addresses" form:"server" need:"an odd number of at least 3" change:"lock,set"` // an odd number of at least 3, each its own server
}

// Replicas makes replicas confirm each grant. A failover is then unlikely to lose a lock, but
// still can. Not with mode embedded.
type Replicas struct {
	// Confirm is the number of replicas.
	Confirm int `mapstructure:"confirm" default:"1" min:"1" max:"100"`
	// Timeout is how long they have. The most is half of the second that a command may take.
	Timeout time.Duration `mapstructure:"timeout" default:"100ms" min:"1ms" max:"500ms"`
}

// Wait bounds the wait for a lock that another holds: Tries attempts at intervals of Every, or
// as many as fit UpTo. Tries of 1 does not wait.
type Wait struct {
	Tries int           `mapstructure:"tries" not:"up_to" min:"1" max:"1000"` // number of attempts
	Every time.Duration `mapstructure:"every" not:"up_to" min:"1ms" max:"1m"` // pause between them; with kind fair at most 4s
	UpTo  time.Duration `mapstructure:"up_to" min:"1ms" max:"10m"`            // the longest wait
}

// UnknownPolicy is for a lease whose call ended with an unknown outcome: the backend may still
// be at work.
type UnknownPolicy struct {
	// Hold is how long the lock stays, renewed no more; default the lock's lease.
	Hold time.Duration `mapstructure:"hold" min:"1s" max:"24h"`
}

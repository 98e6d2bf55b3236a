// Package redisconn connects to Redis as configured, and watches two of its limits: that it
// takes writes, and that it evicts nothing that must stay.
//
// Start with [Connect]. [WatchMemory] and [NewEvictionWatch] watch a client's servers.
package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/ordergate/ordergate/config"
)

// Limits of a command. They are short, since a request waits for each command: a Redis that
// needs a second counts as unreachable.
const (
	dialTimeout = 500 * time.Millisecond // TLS included
	// Timeout bounds one attempt of a command.
	Timeout = time.Second
	// maxRetries allows a second attempt on another connection. That is enough when a
	// restart or a firewall has closed the first. Every script of ours may be repeated.
	maxRetries = 1
	// CommandTimeout is the longest time that a command takes with a Redis that hangs, a new
	// connection included.
	CommandTimeout = dialTimeout + (1+maxRetries)*Timeout
	// maxRedirects finds a key in a cluster with an old map of the slots: MOVED to the
	// primary that has the slot now, ASK to the primary that is taking it over. It counts
	// retries too, so a command is sent at most three times.
	maxRedirects = 2
	// poolSize is per process, and in a cluster per node. A settlement uses a connection for
	// two round trips, so this many serve tens of thousands of calls.
	poolSize = 64
)

// Limits of finding the primary.
const (
	// sentinelTimeout bounds each step of a query to a Sentinel: connect, log in, ask. With
	// less, a host that is far away or overloaded would never find the primary.
	sentinelTimeout = 500 * time.Millisecond
	// sentinelDialTimeout bounds a new connection to the primary, finding the primary
	// included. The client tries a Sentinel that hangs twice before it tries the others.
	sentinelDialTimeout = 5 * sentinelTimeout
	// clusterReload is the interval between two reads of the cluster's map. A primary that
	// died redirects no client, so until then the client sends its commands there.
	clusterReload = time.Second
)

// Connect returns a client for the configured Redis. It does not wait for Redis. The pool
// has room for so many blocking calls besides the others, each of which occupies a
// connection. The returned function closes the client, and the Redis itself when it is
// embedded.
//
// The client behaves alike in every mode. The time limits are the same, and a context's
// deadline shortens them. A command without a reply is sent once more. Only primaries
// receive commands, since a replica may lack the newest lock and the newest order.
func Connect(ctx context.Context, c *config.Redis, blocking int) (redis.UniversalClient, func(), error) {
	// The library would write several lines to stderr for each failed connection. Errors
	// are returned anyway.
	redis.SetLogger(silent{})
	opts, err := optionsOf(c)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to Redis: %w", err)
	}
	opts.PoolSize += blocking
	var client redis.UniversalClient
	stop := func() {}
	switch login := login(c); c.Mode {
	case config.RedisSentinel:
		client = sentinelClient(opts, login)
	case config.RedisCluster:
		client = clusterClient(opts, login)
	case config.RedisEmbedded:
		// It has to outlive the signal to stop: calls release their locks after it.
		server, err := embed(context.WithoutCancel(ctx))
		if err != nil {
			return nil, nil, fmt.Errorf("starting the embedded Redis: %w", err)
		}
		opts.Addrs, stop = []string{server.addr}, server.stop
		client = redis.NewClient(opts.Simple())
	default:
		simple := opts.Simple()
		simple.CredentialsProviderContext = login
		client = redis.NewClient(simple)
	}
	return client, func() { _ = client.Close(); stop() }, nil
}

// optionsOf returns the options that all modes have in common.
func optionsOf(c *config.Redis) (*redis.UniversalOptions, error) {
	dial, err := dialer(c.TLS)
	if err != nil {
		return nil, err
	}
	opts := &redis.UniversalOptions{
		Addrs:                 make([]string, len(c.Addresses)),
		MasterName:            c.Master,
		DB:                    c.Database,
		Username:              c.Username,
		Password:              string(c.Password),
		SentinelUsername:      c.SentinelUsername,
		SentinelPassword:      string(c.SentinelPassword),
		ClientName:            "ordergate",
		Dialer:                dial,
		DialTimeout:           dialTimeout,
		ReadTimeout:           Timeout,
		WriteTimeout:          Timeout,
		PoolTimeout:           Timeout,
		MaxRetries:            maxRetries,
		DialerRetries:         1, // MaxRetries repeats the command
		PoolSize:              poolSize,
		ContextTimeoutEnabled: true, // or a context's deadline does not shorten a call
		// Each costs one more round trip per connection. Redis supports the first since
		// version 7.2, and the second not at all.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for i, address := range c.Addresses {
		opts.Addrs[i] = strings.TrimPrefix(address, "unix:") // the library recognises a path by its slash
	}
	return opts, nil
}

// login returns a function with the user and the password for a new connection, nil: those of the
// options.
func login(c *config.Redis) func(context.Context) (user, password string, err error) {
	reread := c.RereadPassword()
	if reread == nil {
		return nil
	}
	return func(context.Context) (user, password string, err error) { return c.Username, reread(), nil }
}

// dialer returns the function that makes connections. The library's own ignores the context
// during a handshake.
func dialer(settings *config.TLS) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	plain := &net.Dialer{Timeout: dialTimeout}
	if settings == nil {
		return plain.DialContext, nil
	}
	c, err := settings.Config("redis.tls")
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{NetDialer: plain, Config: c}).DialContext, nil
}

// sentinelClient returns a client that asks Sentinels for the primary for each new
// connection, and leaves a demoted primary when they report another one.
func sentinelClient(opts *redis.UniversalOptions, login func(context.Context) (string, string, error)) *redis.Client {
	failover := opts.Failover()
	failover.CredentialsProviderContext = login // the library has none for the Sentinels
	failover.DialTimeout = sentinelDialTimeout
	client := redis.NewFailoverClient(failover)
	// The client has its own copy by now. It makes the clients of Sentinels from these
	// options later. The library has no other way to set their limits.
	failover.DialTimeout = sentinelTimeout
	failover.ReadTimeout = sentinelTimeout
	failover.WriteTimeout = sentinelTimeout
	failover.MaxRetries = -1 // none: there are other Sentinels to ask
	return client
}

// QuorumServer returns the settings of one server of a quorum: those of the common Redis, if
// there is one, with another address.
func QuorumServer(common *config.Redis, address string) *config.Redis {
	server := config.Redis{Mode: config.RedisSingle, Addresses: []string{address}}
	if common != nil {
		server.Username, server.Password, server.PasswordFile = common.Username, common.Password, common.PasswordFile
		server.TLS, server.Database = common.TLS, common.Database
	}
	return &server
}

// clusterClient returns a client of a cluster. All keys of a script of ours are in one slot.
func clusterClient(opts *redis.UniversalOptions, login func(context.Context) (string, string, error)) *redis.ClusterClient {
	cluster := opts.Cluster()
	cluster.CredentialsProviderContext = login
	// The cluster's client repeats commands itself, on the node that has the slot by then.
	// Retries of each node's client would multiply that.
	cluster.MaxRetries = -1
	cluster.MaxRedirects = maxRedirects
	cluster.ClusterStateReloadInterval = clusterReload
	// All our commands have keys, which determine the node. The policies would need the
	// permission for COMMAND, and its long reply before the first command.
	cluster.DisableRoutingPolicies = true
	return redis.NewClusterClient(cluster)
}

// silent is a logger that writes nothing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Explain returns the error of a first command with what it says about Redis: its reply shows that
// it is reachable.
func Explain(err error) error {
	var reply redis.Error
	var late net.Error
	switch {
	case errors.Is(err, io.EOF), errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("not reachable, or redis.tls is not as it has it: %w", err)
	case !errors.As(err, &reply):
		return fmt.Errorf("not reachable: %w", err)
	case strings.HasPrefix(err.Error(), "NOAUTH"):
		return fmt.Errorf("it is reachable, and asks for a password: set redis.password_file or redis.password_env: %w", err)
	}
	return fmt.Errorf("it is reachable, and refuses: %w", err)
}

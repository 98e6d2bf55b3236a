package engine

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/ordergate/ordergate/config"
)

// Limits of a question to Redis. They are short, since a request waits behind
// each: a Redis that takes a second is as good as away.
const (
	redisDialTimeout = 500 * time.Millisecond // TLS included
	RedisTimeout     = time.Second
	// redisRetries is once more on another connection, which is enough for one
	// that a restart or a firewall has closed. Every script of ours may be
	// repeated.
	redisRetries = 1
	// redisRedirects is what it takes in a cluster to find a key with an old map of
	// the slots: MOVED to the master that has the slot now, ASK to the one that it
	// is just being moved to. It counts retries too, so a question is sent three
	// times at most.
	redisRedirects = 2
	// redisPool is per process, and in a cluster per node. A bracket uses a
	// connection for a round trip, twice, so this many serve tens of thousands of
	// calls.
	redisPool = 64
)

// Limits of finding the master.
const (
	// sentinelTimeout bounds each step of a question to a Sentinel: to connect, to log
	// in, to ask. With less, a host that is far away, or too busy to run us for a while,
	// would never find the master.
	sentinelTimeout = 500 * time.Millisecond
	// sentinelDialTimeout bounds a new connection to the master, the question who
	// that is included. One that starts with a Sentinel that hangs asks it twice
	// before it turns to the others: without the time for that, it would never come
	// to them.
	sentinelDialTimeout = 5 * sentinelTimeout
	// clusterReload is how often the map of a cluster is read. A master that died
	// redirects nobody, so until then its slots are looked for where it was.
	clusterReload = time.Second
)

// Connect returns a client for the configured Redis. It does not wait for Redis
// to be there. The returned function closes the client, and the Redis itself when
// it is embedded.
//
// The client behaves alike in every mode: the same time limits, which a context's
// deadline shortens; one more try where an answer did not come; and only masters
// are asked, since a replica knows neither the newest lock nor the newest order.
func Connect(ctx context.Context, c *config.Redis) (redis.UniversalClient, func(), error) {
	return connect(ctx, c, 0)
}

// connect is Connect for somebody who has so many calls wait in Redis all the time, each of which takes a connection.
func connect(ctx context.Context, c *config.Redis, waiting int) (redis.UniversalClient, func(), error) {
	// It would write to stderr, several lines for each failed connection. What
	// matters comes back as an error.
	redis.SetLogger(silent{})
	opts, err := redisOptions(c)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to Redis: %w", err)
	}
	opts.PoolSize += waiting
	var client redis.UniversalClient
	stop := func() {}
	switch c.Mode {
	case config.RedisSentinel:
		client = sentinelClient(opts)
	case config.RedisCluster:
		client = clusterClient(opts)
	case config.RedisEmbedded:
		// It has to outlive the signal to stop: calls that finish release locks.
		server, err := embed(context.WithoutCancel(ctx))
		if err != nil {
			return nil, nil, fmt.Errorf("starting the embedded Redis: %w", err)
		}
		opts.Addrs, stop = []string{server.addr}, server.stop
		client = redis.NewClient(opts.Simple())
	default:
		client = redis.NewClient(opts.Simple())
	}
	return client, func() { _ = client.Close(); stop() }, nil
}

// redisOptions returns what all modes have in common.
func redisOptions(c *config.Redis) (*redis.UniversalOptions, error) {
	dial, err := redisDialer(c.TLS)
	if err != nil {
		return nil, err
	}
	opts := &redis.UniversalOptions{
		Addrs:                 make([]string, len(c.Addresses)),
		MasterName:            c.Master,
		Username:              c.Username,
		Password:              c.Password,
		SentinelUsername:      c.SentinelUsername,
		SentinelPassword:      c.SentinelPassword,
		ClientName:            "ordergate",
		Dialer:                dial,
		DialTimeout:           redisDialTimeout,
		ReadTimeout:           RedisTimeout,
		WriteTimeout:          RedisTimeout,
		PoolTimeout:           RedisTimeout,
		MaxRetries:            redisRetries,
		DialerRetries:         1, // MaxRetries tries again
		PoolSize:              redisPool,
		ContextTimeoutEnabled: true, // or a context's deadline does not shorten a call
		// Each is a round trip more for every connection, and nothing that Redis
		// itself has before version 7.2, or at all.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for i, address := range c.Addresses {
		opts.Addrs[i] = strings.TrimPrefix(address, "unix:") // a path is known by its slash
	}
	return opts, nil
}

// redisDialer returns the function that makes connections. That of the client
// pays no heed to the context during a handshake.
func redisDialer(settings *config.TLS) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	plain := &net.Dialer{Timeout: redisDialTimeout}
	if settings == nil {
		return plain.DialContext, nil
	}
	c, err := settings.Config()
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{NetDialer: plain, Config: c}).DialContext, nil
}

// sentinelClient returns a client that asks Sentinels for the master whenever it
// makes a connection, and leaves the old master when they tell of a new one.
func sentinelClient(opts *redis.UniversalOptions) *redis.Client {
	failover := opts.Failover()
	failover.DialTimeout = sentinelDialTimeout
	client := redis.NewFailoverClient(failover)
	// The client has taken its copy: what is set from here on is for the Sentinels,
	// whose clients are made of these options when they are needed. There are no
	// other options by which to give them limits of their own.
	failover.DialTimeout = sentinelTimeout
	failover.ReadTimeout = sentinelTimeout
	failover.WriteTimeout = sentinelTimeout
	failover.MaxRetries = -1 // none: there are other Sentinels to ask
	return client
}

// clusterClient returns a client of a cluster. Every key of a script of ours is
// in one slot.
func clusterClient(opts *redis.UniversalOptions) *redis.ClusterClient {
	cluster := opts.Cluster()
	// It tries again itself, on the node that has the slot by then; each node's own
	// retries would multiply that.
	cluster.MaxRetries = -1
	cluster.MaxRedirects = redisRedirects
	cluster.ClusterStateReloadInterval = clusterReload
	// Ours are commands with keys, sent where the keys are. For others it would have
	// to be allowed COMMAND, and to read its long answer before the first question.
	cluster.DisableRoutingPolicies = true
	return redis.NewClusterClient(cluster)
}

// silent is a logger that writes nothing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// embedded is a Redis in this process, for trying ordergate out.
type embedded struct {
	addr string
	stop func()
}

// embedStep is how finely the embedded Redis sees time pass: its keys expire up
// to this much late.
const embedStep = 10 * time.Millisecond

func embed(ctx context.Context) (*embedded, error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // its clock stands still unless somebody drives it
		defer close(done)
		ticker := time.NewTicker(embedStep)
		defer ticker.Stop()
		last := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				server.FastForward(now.Sub(last))
				last = now
			}
		}
	}()
	return &embedded{addr: server.Addr(), stop: func() {
		cancel()
		<-done
		server.Close()
	}}, nil
}

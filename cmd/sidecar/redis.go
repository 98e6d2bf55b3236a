package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
)

// Limits of a question to Redis. They are short, since a request waits behind
// each: a Redis that takes a second is as good as away.
const (
	redisDialTimeout = 500 * time.Millisecond
	redisTimeout     = time.Second
	// redisRetries is once more on another connection, which is enough for one
	// that a restart or a firewall has closed. Every script of ours may be
	// repeated.
	redisRetries = 1
	// redisPool is per process. A bracket uses a connection for a round trip,
	// twice, so this many serve tens of thousands of calls.
	redisPool = 64
)

// connect returns a client for the configured Redis. It does not wait for Redis
// to be there. The returned function closes the client, and the Redis itself when
// it is embedded.
func connect(ctx context.Context, c *config.Redis) (redis.UniversalClient, func(), error) {
	opts := redis.UniversalOptions{
		Addrs:                 c.Addresses,
		Username:              c.Username,
		Password:              c.Password,
		ClientName:            "ordergate",
		DialTimeout:           redisDialTimeout,
		ReadTimeout:           redisTimeout,
		WriteTimeout:          redisTimeout,
		PoolTimeout:           redisTimeout,
		MaxRetries:            redisRetries,
		DialerRetries:         1, // MaxRetries tries again
		PoolSize:              redisPool,
		ContextTimeoutEnabled: true, // or a context's deadline does not shorten a call
	}
	stop := func() {}
	if c.Mode == config.RedisEmbedded {
		// It has to outlive the signal to stop: calls that finish release locks.
		server, err := embed(context.WithoutCancel(ctx))
		if err != nil {
			return nil, nil, fmt.Errorf("starting the embedded Redis: %w", err)
		}
		opts.Addrs, stop = []string{server.addr}, server.stop
	}
	client := redis.NewUniversalClient(&opts)
	return client, func() { _ = client.Close(); stop() }, nil
}

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

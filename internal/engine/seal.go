package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/redissecret"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// sealKey has the key of [gate.Seal] in Redis.
const sealKey = "ordergate:seal"

const (
	// sealEvery is the time between two looks at the key in Redis, which may lose it.
	sealEvery = 10 * time.Second
	// sealTimeout bounds such a look.
	sealTimeout = 500 * time.Millisecond
)

// sharedSeal has the same key in every instance with the same Redis. Without Redis each process has
// one of its own.
type sharedSeal struct {
	*gate.Seal
	redis   redis.UniversalClient // nil: none
	limit   *rate.Limiter         // of looks because of a request
	log     *slog.Logger
	once    sync.Once // runs it
	looking sync.Mutex
	logged  string // why the key cannot be used; "": it can, as far as known
}

func newSharedSeal(client redis.UniversalClient, log *slog.Logger) *sharedSeal {
	return &sharedSeal{Seal: gate.NewSeal(), redis: client, limit: rate.NewLimiter(1, 1), log: log}
}

// run keeps the key until ctx ends.
func (s *sharedSeal) run(ctx context.Context) {
	if s.redis == nil {
		return
	}
	s.look(ctx)
	for range wait.Every(ctx, sealEvery) {
		s.look(ctx)
	}
}

// Renew looks at the key, since a request was sealed with another one. It does so once a second at
// most: clients may make up paths.
func (s *sharedSeal) Renew(ctx context.Context) {
	if s.redis != nil && s.limit.Allow() {
		s.look(ctx)
	}
}

// look takes the key from Redis, and stores its own if Redis has none. Without an answer the key
// stays: requests that need a lock are refused then.
func (s *sharedSeal) look(ctx context.Context) {
	s.looking.Lock()
	defer s.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	key, err := redissecret.Load(ctx, s.redis, sealKey, s.Key())
	reply, replied := errors.AsType[redis.Error](err)
	switch {
	case err == nil:
		s.Use(key)
		s.logged = ""
	case !errors.Is(err, redissecret.ErrMalformed) && !(replied && (redis.HasErrorPrefix(reply, "WRONGTYPE") || redis.HasErrorPrefix(reply, "NOPERM"))):
		// Redis is away, or not ready.
	case err.Error() != s.logged:
		s.logged = err.Error()
		s.log.Error("ordergates cannot share the key that seals requests between ext_authz and ext_proc, and refuse each other's with 503",
			"key", sealKey, "error", err,
			runbook.RedisUsers.Do("delete the key, and give ordergate the right to read and write it"))
	}
}

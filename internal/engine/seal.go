package engine

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/ordergate/ordergate/internal/gate"
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
	redis  redis.UniversalClient // nil: none
	limit  *rate.Limiter         // of looks because of a request
	shared chan struct{}         // holds a value while one looks
}

func newSharedSeal(client redis.UniversalClient) *sharedSeal {
	return &sharedSeal{Seal: gate.NewSeal(), redis: client, limit: rate.NewLimiter(1, 1), shared: make(chan struct{}, 1)}
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
	s.shared <- struct{}{}
	defer func() { <-s.shared }()
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	own := s.Key()
	_, err := s.redis.SetNX(ctx, sealKey, own[:], 0).Result()
	text, readErr := s.redis.Get(ctx, sealKey).Result()
	var key [gate.SealKeySize]byte
	if errors.Join(err, readErr) == nil && copy(key[:], text) == len(key) {
		s.Use(key)
	}
}

package redisset

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/rediskey"
	"github.com/ordergate/ordergate/internal/redissecret"
)

// loadSecret reads the secret in Redis. If there is none it stores the known one, or a new one.
// Bits of another secret are useless: none of their marks are found.
func (s *Set) loadSecret(ctx context.Context) error {
	if s.opts.Bits.Secret != ([16]byte{}) {
		s.secret = s.opts.Bits.Secret
		return nil
	}
	found, err := Secret(ctx, s.client, s.opts.Name, s.secret)
	if err != nil {
		return err
	}
	if found != s.secret {
		s.secret = found
		for _, t := range s.sets {
			go t.close() // it waits for the running queries
		}
		clear(s.sets)
	}
	return nil
}

// Secret returns the secret of a filter's hashes in Redis; see [redissecret.Load].
func Secret(ctx context.Context, client redis.UniversalClient, filter string, mine [16]byte) ([16]byte, error) {
	return redissecret.Load(ctx, client, rediskey.Of(filter, "secret"), mine)
}

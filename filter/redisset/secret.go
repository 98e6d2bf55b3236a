package redisset

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/rediskey"
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

// Secret returns the secret of a filter's hashes in Redis. If there is none, it stores the
// given one, or a new one. It blocks for up to three round trips.
func Secret(ctx context.Context, client redis.UniversalClient, filter string, mine [16]byte) (secret [16]byte, err error) {
	key := rediskey.Of(filter, "secret")
	text, err := client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		if mine == ([16]byte{}) {
			rand.Read(mine[:]) // never fails, by its documentation
		}
		if err := client.SetNX(ctx, key, hex.EncodeToString(mine[:]), 0).Err(); err != nil {
			return secret, fmt.Errorf("writing %s: %w", key, err)
		}
		text, err = client.Get(ctx, key).Result()
	}
	if err != nil {
		return secret, fmt.Errorf("reading %s: %w", key, err)
	}
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != len(secret) {
		return secret, fmt.Errorf("reading %s: it is not a secret of %d bytes in hex", key, len(secret))
	}
	return [16]byte(data), nil
}

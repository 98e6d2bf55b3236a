package shared

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// findSecret takes the secret in Redis, or puts one there: that which is known, if
// there was one. Bits that were made with another are of no use: none of their marks
// are there.
func (s *Set) findSecret(ctx context.Context) error {
	if s.opts.Bits.Secret != ([16]byte{}) {
		s.secret = s.opts.Bits.Secret
		return nil
	}
	key := "ordergate:{" + s.opts.Name + "}:secret"
	text, err := s.client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		mine := s.secret
		if mine == ([16]byte{}) {
			rand.Read(mine[:]) // never fails, by its documentation
		}
		if err := s.client.SetNX(ctx, key, hex.EncodeToString(mine[:]), 0).Err(); err != nil {
			return fmt.Errorf("writing %s: %w", key, err)
		}
		text, err = s.client.Get(ctx, key).Result()
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", key, err)
	}
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) != len(s.secret) {
		return fmt.Errorf("reading %s: it is no secret of %d bytes in hex", key, len(s.secret))
	}
	if found := [16]byte(secret); found != s.secret {
		s.secret = found
		for _, t := range s.sets {
			go t.close() // it waits for the questions that are on their way
		}
		clear(s.sets)
	}
	return nil
}

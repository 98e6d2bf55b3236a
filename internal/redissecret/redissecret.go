// Package redissecret shares a random secret among instances by a key in Redis. See [Load].
package redissecret

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrMalformed means that the value of a key is not a secret.
var ErrMalformed = errors.New("it is not a secret of 16 bytes in hex")

// Load returns the secret at a key. If there is none, it stores the given one, or a new one if that
// is zero. Of instances that store one at the same time, all get the first. It blocks for up to three
// round trips. The errors are ErrMalformed, and those of Redis.
func Load(ctx context.Context, client redis.UniversalClient, key string, mine [16]byte) (secret [16]byte, err error) {
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
		return secret, fmt.Errorf("reading %s: %w", key, ErrMalformed)
	}
	return [16]byte(data), nil
}

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The bare candidates are what one writes by hand, as the documentation of
// Redis's SET has it: SET NX PX with a random value, and a script that deletes
// the key if it still has that value. They renew nothing and tell nobody, so
// they are the floor: two round trips.

const deleteIfOurs = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`

// errNotHeld says that a lock was not ours any more when it was released. No
// round lasts until a lock ends by itself, so it spoils the round.
var errNotHeld = errors.New("the lock was not held at its release")

// goRedis is the bare candidate on go-redis.
type goRedis struct {
	client   *redis.Client
	patience patience
	release  *redis.Script
}

func openGoRedis(addr string, p patience) (instance, error) {
	return &goRedis{redis.NewClient(&redis.Options{Addr: addr}), p, redis.NewScript(deleteIfOurs)}, nil
}

func (g *goRedis) caller() caller { return &goRedisCaller{goRedis: g} }
func (g *goRedis) close()         { g.client.Close() }

type goRedisCaller struct {
	*goRedis
	key, token string
}

func (c *goRedisCaller) lock(ctx context.Context, key string) error {
	c.key, c.token = key, rand.Text()
	return c.patience.retry(ctx, func() (bool, error) {
		err := c.client.SetArgs(ctx, c.key, c.token, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
		if errors.Is(err, redis.Nil) {
			return false, nil
		}
		return err == nil, err
	})
}

func (c *goRedisCaller) unlock(ctx context.Context) error {
	n, err := c.release.Run(ctx, c.client, []string{c.key}, c.token).Int64()
	return deleted(n, err)
}

// bareRueidis is the bare candidate on rueidis.
type bareRueidis struct {
	client   rueidis.Client
	patience patience
	release  *rueidis.Lua
}

func openRueidis(addr string, p patience) (instance, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return nil, fmt.Errorf("connecting with rueidis: %w", err)
	}
	return &bareRueidis{client, p, rueidis.NewLuaScript(deleteIfOurs)}, nil
}

func (r *bareRueidis) caller() caller { return &rueidisCaller{bareRueidis: r} }
func (r *bareRueidis) close()         { r.client.Close() }

type rueidisCaller struct {
	*bareRueidis
	key, token string
}

func (c *rueidisCaller) lock(ctx context.Context, key string) error {
	c.key, c.token = key, rand.Text()
	return c.patience.retry(ctx, func() (bool, error) {
		set := c.client.B().Set().Key(c.key).Value(c.token).Nx().PxMilliseconds(lease.Milliseconds()).Build()
		err := c.client.Do(ctx, set).Error()
		if rueidis.IsRedisNil(err) {
			return false, nil
		}
		return err == nil, err
	})
}

func (c *rueidisCaller) unlock(ctx context.Context) error {
	n, err := c.release.Exec(ctx, c.client, []string{c.key}, []string{c.token}).AsInt64()
	return deleted(n, err)
}

func deleted(n int64, err error) error {
	if err == nil && n != 1 {
		err = errNotHeld
	}
	return err
}

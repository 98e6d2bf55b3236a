package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

// lockTime is more than a probe takes.
const lockTime = time.Minute

// lockKey is the key of an order's lock: the example's, and settle.lua's.
func lockKey(id int64) string { return fmt.Sprintf("order:lock:%d", id) }

// lockForeign has the gateway's locks taken as Redisson would: a hash with the
// holder's name as its field.
func (g *gateway) lockForeign() {
	g.lock = func(ctx context.Context, id int64) error {
		key := lockKey(id)
		_, err := g.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, key, "00000000-0000-0000-0000-000000000000:1", 1)
			p.PExpire(ctx, key, lockTime)
			return nil
		})
		return taking(err)
	}
	g.unlock = g.deleteLock
	g.busy = answer{http.StatusConflict, "busy"}
}

// lockByHand has the gateway's locks taken by SET NX PX.
func (g *gateway) lockByHand() {
	g.lock = func(ctx context.Context, id int64) error {
		return taking(g.client.SetNX(ctx, lockKey(id), "another", lockTime).Err())
	}
	g.unlock = g.deleteLock
	g.busy = answer{http.StatusConflict, ""}
}

func (g *gateway) deleteLock(ctx context.Context, id int64) error {
	return taking(g.client.Del(ctx, lockKey(id)).Err())
}

func taking(err error) error {
	if err != nil {
		return fmt.Errorf("taking and giving back a lock: %w", err)
	}
	return nil
}

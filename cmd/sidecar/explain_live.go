package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
)

// lockState is what Redis says of a lock now.
type lockState struct {
	Key     string   `json:"key"`
	State   string   `json:"state"`   // free, held, other_type (no lock of ours or Redisson's), unreachable
	LeftMS  *int64   `json:"left_ms"` // null: not held, or without an end
	Holders []string `json:"holders"` // the beginnings of their names: whoever knows a whole one holds the lock
	Error   *string  `json:"error"`
}

// shownOwner is how much of an owner's name is told.
const shownOwner = 8

// lockStates asks Redis about locks, and waits for it a second at most.
func lockStates(ctx context.Context, c *config.Redis, keys []string) []lockState {
	states := make([]lockState, len(keys))
	for i, key := range keys {
		states[i] = lockState{Key: key, Holders: []string{}}
	}
	if len(keys) == 0 {
		return states
	}
	if err := readLocks(ctx, c, states); err != nil {
		for i := range states {
			states[i].State, states[i].Error = "unreachable", new(err.Error())
		}
	}
	return states
}

func readLocks(ctx context.Context, c *config.Redis, states []lockState) error {
	if c == nil || c.Mode == config.RedisEmbedded {
		return errors.New("an embedded Redis is inside the process that serves")
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := dialAny(ctx, c.Addresses); err != nil {
		return err
	}
	client, closeClient, err := connect(ctx, c)
	if err != nil {
		return err
	}
	defer closeClient()
	for i := range states {
		if err := states[i].read(ctx, client); err != nil {
			return err
		}
	}
	return nil
}

// dialAny tells whether there is anybody to ask: the client would write about it
// to stderr, each time that it tries.
func dialAny(ctx context.Context, addresses []string) (err error) {
	for _, addr := range addresses {
		var conn net.Conn
		if conn, err = (&net.Dialer{Timeout: redisDialTimeout}).DialContext(ctx, "tcp", addr); err == nil {
			return conn.Close()
		}
	}
	return err
}

func (s *lockState) read(ctx context.Context, client redis.UniversalClient) error {
	var left *redis.DurationCmd
	var owners *redis.MapStringStringCmd
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		left, owners = p.PTTL(ctx, s.Key), p.HGetAll(ctx, s.Key)
		return nil
	})
	switch {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		s.State = "other_type"
	case err != nil:
		return err
	case len(owners.Val()) == 0:
		s.State = "free"
		return nil
	default:
		s.State = "held"
	}
	if d := left.Val(); d >= 0 {
		s.LeftMS = new(d.Milliseconds())
	}
	for name := range owners.Val() {
		s.Holders = append(s.Holders, visible(name[:min(len(name), shownOwner)]))
	}
	slices.Sort(s.Holders)
	return nil
}

// String tells it in a line.
func (s lockState) String() string {
	left := "without an end"
	if s.LeftMS != nil {
		left = fmt.Sprintf("%s left", time.Duration(*s.LeftMS)*time.Millisecond)
	}
	switch s.State {
	case "unreachable":
		return s.Key + ": store not reachable: " + *s.Error
	case "held":
		return fmt.Sprintf("%s: held by %s..., %s", s.Key, strings.Join(s.Holders, "..., "), left)
	case "other_type":
		return s.Key + ": held by something that is no Redisson lock, " + left
	}
	return s.Key + ": free"
}

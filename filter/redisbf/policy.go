package redisbf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// CheckPolicy returns a warning if Redis may evict the set when its memory is full,
// and "" if it does not or does not say: an evicted set is Unknown, never Absent,
// and rejects nothing any more.
func (s *Set) CheckPolicy(ctx context.Context) (warning string, err error) {
	var mu sync.Mutex
	check := func(ctx context.Context, node *redis.Client) error {
		found, err := s.checkNode(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if warning == "" {
			warning = found
		}
		return err
	}
	if s.cluster != nil {
		err = s.cluster.ForEachMaster(ctx, check)
	} else {
		err = check(ctx, s.client.(*redis.Client))
	}
	if err != nil {
		return "", fmt.Errorf("asking for the eviction policy of filter %s: %w", s.opts.Key, err)
	}
	return warning, nil
}

func (s *Set) checkNode(ctx context.Context, node *redis.Client) (string, error) {
	// INFO returns the same as CONFIG, which many a provider forbids.
	text, err := node.Info(ctx, "memory").Result()
	if err != nil {
		if _, refused := errors.AsType[redis.Error](err); refused {
			return "", nil
		}
		return "", err
	}
	limit, policy := infoField(text, "maxmemory"), infoField(text, "maxmemory_policy")
	if limit == "" || limit == "0" {
		return "", nil
	}
	where := fmt.Sprintf("filter %s: %s has maxmemory %s and maxmemory-policy %s", s.opts.Key, node.Options().Addr, limit, policy)
	switch {
	case strings.HasPrefix(policy, "allkeys-"):
		return where + ": it may evict the filter, which is unknown from then on; noeviction or a volatile policy keeps it", nil
	case strings.HasPrefix(policy, "volatile-"):
		key, err := s.expiring(ctx)
		if err != nil || key == "" {
			return "", err
		}
		return fmt.Sprintf("%s, and %s has a time to live: it may be evicted before; PERSIST keeps it", where, key), nil
	}
	return "", nil
}

// expiring returns a key of the set that has a time to live, if any has.
func (s *Set) expiring(ctx context.Context) (string, error) {
	var keys []string
	for shard := range s.opts.Shards {
		keys = append(keys, s.kind.keys(shard)...)
	}
	left, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.PTTL(ctx, key)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	for i, cmd := range left {
		if cmd.(*redis.DurationCmd).Val() >= 0 { // -1 and -2 are none, and no key
			return keys[i], nil
		}
	}
	return "", nil
}

func infoField(text, field string) string {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

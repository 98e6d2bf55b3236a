package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// eviction is whether Redis may remove keys that must stay. An evicted lock is free, and two
// settle one order at once. An operator may change the policy at any time, so Redis is asked
// again and again. It is safe for concurrent use.
type eviction struct {
	servers  func() []redis.UniversalClient
	stake    func() stake
	log      *slog.Logger
	policies policies // as of the last look, whose own it is

	mu      sync.Mutex
	finding finding
}

// stake is what a Redis has that must stay.
type stake struct {
	locks bool // enforced ones: each has a time to live
	logs  bool // change logs, which have none
}

// finding is what was found about the policy.
type finding struct {
	text  string // what an operator has to do; "": nothing
	harms bool   // keys may be evicted; otherwise Redis does not tell
}

// evictionEvery is how often Redis is asked for its policy.
const evictionEvery = 10 * time.Second

// run asks until ctx ends. It does nothing for nil.
func (e *eviction) run(ctx context.Context) {
	if e == nil {
		return
	}
	tick := time.NewTicker(evictionEvery)
	defer tick.Stop()
	for {
		e.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// found returns what was found last. It is the zero value for nil.
func (e *eviction) found() finding {
	if e == nil {
		return finding{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finding
}

// look asks each server, and logs what has changed. It is called by one goroutine at a time,
// and does nothing for nil.
func (e *eviction) look(ctx context.Context) {
	if e == nil {
		return
	}
	e.policies = readPolicies(ctx, e.servers(), e.policies)
	found := e.stake().judge(e.policies)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case found == e.finding:
	case found.text == "":
		e.log.Info("Redis evicts nothing that must stay any more")
	default:
		e.log.Warn(found.text)
	}
	e.finding = found
}

// judge returns what policies mean for what is at stake.
func (s stake) judge(all policies) finding {
	var evict, untold []string
	for _, server := range slices.Sorted(maps.Keys(all)) {
		switch policy := all[server]; {
		case policy == policyUntold:
			untold = append(untold, server)
		case strings.HasPrefix(policy, "allkeys-"), strings.HasPrefix(policy, "volatile-") && s.locks:
			evict = append(evict, fmt.Sprintf("%s (%s)", server, policy))
		}
	}
	switch {
	case s == stake{}:
	case len(evict) > 0 && s.locks:
		return finding{"Redis may evict locks when its memory is full, and then two settle one order at once: " +
			"set maxmemory-policy noeviction at " + strings.Join(evict, ", "), true}
	case len(evict) > 0:
		return finding{"Redis may evict the change log when its memory is full, and then no order counts as absent: " +
			"set maxmemory-policy noeviction at " + strings.Join(evict, ", "), true}
	case len(untold) > 0:
		return finding{"Redis does not tell whether it evicts keys: let the user run INFO at " + strings.Join(untold, ", "), false}
	}
	return finding{}
}

// stake returns what the Redis of everything but quorums has by the rules in force.
func (m *Engine) stake() stake {
	s := stake{logs: len(m.filters) > 0}
	for _, unit := range m.lockers.list() {
		s.locks = s.locks || !unit.use.observe && unit.eviction == nil
	}
	return s
}

// policies are maxmemory-policies by server. That of a server whose memory has no limit is
// "": it evicts nothing.
type policies map[string]string

// policyUntold is that of a server which does not let us ask.
const policyUntold = "?"

// readPolicies asks each server, and each master of a cluster. One that does not answer has
// the policy that it had before.
func readPolicies(ctx context.Context, servers []redis.UniversalClient, before policies) policies {
	var mu sync.Mutex
	now := make(policies)
	read := func(ctx context.Context, server *redis.Client) error {
		name := serverName(server)
		policy, err := readPolicy(ctx, server)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			now[name] = policy
		} else if policy, known := before[name]; known {
			now[name] = policy
		}
		return nil
	}
	for _, server := range servers {
		ctx, cancel := context.WithTimeout(ctx, RedisTimeout)
		switch c := server.(type) {
		case *redis.ClusterClient:
			if c.ForEachMaster(ctx, read) != nil { // not even the map of the cluster is there
				maps.Copy(now, before)
			}
		case *redis.Client:
			_ = read(ctx, c) // it never fails
		}
		cancel()
	}
	return now
}

// readPolicy asks by INFO, which tells the same as CONFIG. Many a provider forbids that.
func readPolicy(ctx context.Context, server *redis.Client) (string, error) {
	info, err := server.Info(ctx, "memory").Result()
	if err != nil {
		text := strings.ToLower(err.Error())
		if strings.Contains(text, "info") && (strings.HasPrefix(text, "noperm") || strings.Contains(text, "unknown command")) {
			return policyUntold, nil
		}
		return "", err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	if limit := fields["maxmemory"]; limit == "" || limit == "0" {
		return "", nil
	}
	return fields["maxmemory_policy"], nil
}

// serverName names a server to an operator.
func serverName(server *redis.Client) string {
	const bySentinels = "FailoverClient" // what the client library has there
	if addr := server.Options().Addr; addr != bySentinels {
		return addr
	}
	return "the master"
}

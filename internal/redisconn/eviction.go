package redisconn

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

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// EvictionWatch checks whether Redis may evict keys that must stay. An evicted lock is free,
// and two calls settle one order at once. An operator may change the policy at any time, so
// the watch reads it periodically. It is safe for concurrent use. A nil *EvictionWatch checks
// nothing.
type EvictionWatch struct {
	servers  func() []redis.UniversalClient
	stored   func() Stored
	log      *slog.Logger
	policies policies // used by Check alone

	mu      sync.Mutex
	finding Finding
}

// NewEvictionWatch returns a watch of servers. It calls both functions for each check.
func NewEvictionWatch(servers func() []redis.UniversalClient, stored func() Stored, log *slog.Logger) *EvictionWatch {
	return &EvictionWatch{servers: servers, stored: stored, log: log}
}

// Stored are the keys in a Redis that must not be evicted.
type Stored struct {
	Locks      bool // enforced ones: each has a time to live
	ChangeLogs bool // which have none
}

// Finding is the result of a check.
type Finding struct {
	Text    string // the remedy, for an operator; "": all is well
	Harmful bool   // keys may be evicted; false with a text: Redis does not allow the check
}

// evictionInterval is the time between two checks.
const evictionInterval = 10 * time.Second

// Run checks until ctx ends.
func (e *EvictionWatch) Run(ctx context.Context) {
	if e == nil {
		return
	}
	e.Check(ctx)
	for range wait.Every(ctx, evictionInterval) {
		e.Check(ctx)
	}
}

// Finding returns the result of the last check.
func (e *EvictionWatch) Finding() Finding {
	if e == nil {
		return Finding{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finding
}

// Check reads the policy of each server, and logs a changed finding. Only one goroutine at a
// time may call it.
func (e *EvictionWatch) Check(ctx context.Context) {
	if e == nil {
		return
	}
	e.policies = readPolicies(ctx, e.servers(), e.policies)
	found := e.stored().evaluate(e.policies)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case found == e.finding:
	case found.Text == "":
		e.log.Info("Redis no longer evicts keys of ordergate")
	default:
		e.log.Warn(found.Text,
			runbook.RedisSettings.Do("change the setting or the right that the message names"))
	}
	e.finding = found
}

// CheckEviction checks servers once.
func CheckEviction(ctx context.Context, stored Stored, servers ...redis.UniversalClient) Finding {
	return stored.evaluate(readPolicies(ctx, servers, nil))
}

// evaluate returns what the policies mean for the stored keys.
func (s Stored) evaluate(all policies) Finding {
	var evict, unreadable []string
	for _, server := range slices.Sorted(maps.Keys(all)) {
		switch policy := all[server]; {
		case policy == unreadablePolicy:
			unreadable = append(unreadable, server)
		case strings.HasPrefix(policy, "allkeys-"), strings.HasPrefix(policy, "volatile-") && s.Locks:
			evict = append(evict, fmt.Sprintf("%s (%s)", server, policy))
		}
	}
	switch {
	case s == Stored{}:
	case len(evict) > 0 && s.Locks:
		return Finding{"Redis may evict locks when its memory is full, and then two calls settle one order at once: " +
			"set maxmemory-policy noeviction at " + strings.Join(evict, ", "), true}
	case len(evict) > 0:
		return Finding{"Redis may evict the change log when its memory is full, and then no order counts as absent: " +
			"set maxmemory-policy noeviction at " + strings.Join(evict, ", "), true}
	case len(unreadable) > 0:
		return Finding{"Redis does not report whether it evicts keys: let the user run INFO at " + strings.Join(unreadable, ", "), false}
	}
	return Finding{}
}

// policies are maxmemory-policies by server. A server without a memory limit evicts nothing,
// and has "".
type policies map[string]string

// unreadablePolicy stands for a server that does not allow INFO.
const unreadablePolicy = "?"

// readPolicies reads the policy of each server, and of each primary of a cluster. A server
// that does not reply keeps the policy that it had before.
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
		ctx, cancel := context.WithTimeout(ctx, Timeout)
		switch c := server.(type) {
		case *redis.ClusterClient:
			if c.ForEachMaster(ctx, read) != nil { // the cluster's map could not be read
				maps.Copy(now, before)
			}
		case *redis.Client:
			_ = read(ctx, c) // it never fails
		}
		cancel()
	}
	return now
}

// readPolicy reads the policy by INFO. Many providers forbid CONFIG, which has it as well.
func readPolicy(ctx context.Context, server *redis.Client) (string, error) {
	info, err := server.Info(ctx, "memory").Result()
	if err != nil {
		text := strings.ToLower(err.Error())
		if strings.Contains(text, "info") && (strings.HasPrefix(text, "noperm") || strings.Contains(text, "unknown command")) {
			return unreadablePolicy, nil
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
	const bySentinels = "FailoverClient" // the library's placeholder
	if addr := server.Options().Addr; addr != bySentinels {
		return addr
	}
	return "the master"
}

// Package lockreport shows operators the locks in Redis, and releases one by force.
//
// Start with [Client]. Package redislock reads the locks. `ordergate locks` and the page print the
// reports.
package lockreport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Client connects to the servers of the configured locks. Close it after use. It is not
// safe for concurrent use.
type Client struct {
	Config *config.Config
	Redis  redis.UniversalClient // of all locks except quorums; nil: connected on first use
	closes []func()
}

// Server is one of the servers that store a lock.
type Server struct {
	Client  redis.UniversalClient
	Address *string // of a quorum; nil: the lock has a single server
}

// New returns a client for the locks of a configuration, those of the keys of rules (once: by)
// included. The Redis client may be nil, or stays the caller's.
func New(c *config.Config, client redis.UniversalClient) *Client {
	own := *c
	own.Locks = maps.Clone(c.Locks)
	if own.Locks == nil {
		own.Locks = make(map[string]config.Lock)
	}
	maps.Copy(own.Locks, locking.KeyLocks(c))
	return &Client{Config: &own, Redis: client}
}

// Names returns the names of the locks.
func (d *Client) Names() []string { return slices.Sorted(maps.Keys(d.Config.Locks)) }

// OnServer returns the address for the end of a message. It is empty for a single server.
func (s Server) OnServer() string {
	if s.Address == nil {
		return ""
	}
	return " on " + *s.Address
}

// ErrEmbedded says that another process cannot read the locks.
var ErrEmbedded = errors.New("its locks are inside the serving process, and no other process can read them")

// Close disconnects.
func (d *Client) Close() {
	for _, f := range d.closes {
		f()
	}
}

// Servers returns the servers of a lock.
func (d *Client) Servers(ctx context.Context, lock config.Lock) ([]Server, error) {
	if lock.Kind == config.LockQuorum {
		var servers []Server
		for _, address := range lock.Quorum.Addresses {
			client, closeClient, err := redisconn.Connect(ctx, redisconn.QuorumServer(d.Config.Redis, address), 0)
			if err != nil {
				return nil, fmt.Errorf("locks: %w", err)
			}
			d.closes = append(d.closes, closeClient)
			servers = append(servers, Server{client, &address})
		}
		return servers, nil
	}
	if d.Redis == nil && d.Config.Redis.Mode == config.RedisEmbedded {
		return nil, ErrEmbedded
	}
	if d.Redis == nil {
		client, closeClient, err := redisconn.Connect(ctx, d.Config.Redis, 0)
		if err != nil {
			return nil, fmt.Errorf("locks: %w", err)
		}
		d.Redis, d.closes = client, append(d.closes, closeClient)
	}
	return []Server{{Client: d.Redis}}, nil
}

// Inspect reads one lock from all of its servers. It fails if no server answers. If some
// answer, the reports of the others have the state unreachable.
func (d *Client) Inspect(ctx context.Context, name, key string) ([]Lock, error) {
	lock := d.Config.Locks[name]
	servers, err := d.Servers(ctx, lock)
	if err != nil {
		return nil, err
	}
	reports, answered := make([]Lock, len(servers)), 0
	for i, server := range servers {
		state, failed := redislock.Inspect(ctx, server.Client, KindOf(lock), redislock.Format(lock.Format), key)
		if failed != nil {
			err = fmt.Errorf("locks: %w", failed)
			state = redislock.State{Key: key, Kind: KindOf(lock), Format: redislock.Format(lock.Format)}
		} else {
			answered++
		}
		reports[i] = newLock(name, lock, state, server)
		if failed != nil {
			reports[i].State, reports[i].Error = StateUnreachable, new(failed.Error())
		}
	}
	if answered == 0 {
		return nil, err
	}
	return reports, nil
}

// KindOf returns the kind of a lock on each of its servers.
func KindOf(lock config.Lock) redislock.Kind {
	if lock.Kind == config.LockQuorum {
		return redislock.Exclusive
	}
	return redislock.Kind(lock.Kind)
}

// NameOf returns the name of the lock whose template matches a key. If several match, it
// returns the lock with the longest text around the ID. The configuration prevents locks of
// different kinds from sharing a key, so the other templates do not match a real ID. The
// sides of a read-write lock share a template; NameOf returns either.
func (d *Client) NameOf(key string) (string, error) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.Config.Locks)) {
		if MatchesTemplate(d.Config.LockKey(name), key) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("%q is the key of no lock", admin.Visible(key))
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(len(d.Config.Locks[b].Key), len(d.Config.Locks[a].Key))
	})
	best := d.Config.Locks[names[0]].Key
	for _, name := range names[1:] {
		if other := d.Config.Locks[name].Key; len(other) == len(best) && other != best {
			return "", fmt.Errorf("%q may be a key of %s or %s", admin.Visible(key), names[0], name)
		}
	}
	return names[0], nil
}

// MatchesTemplate reports whether some ID turns the template into the key.
func MatchesTemplate(template config.KeyTemplate, key string) bool {
	last := len(template.Texts) - 1
	rest, starts := strings.CutPrefix(key, template.Texts[0])
	rest, ends := strings.CutSuffix(rest, template.Texts[last])
	if !starts || !ends {
		return false
	}
	for _, text := range template.Texts[1:last] { // each variable has a byte at least
		if rest == "" {
			return false
		}
		i := strings.Index(rest[1:], text)
		if i < 0 {
			return false
		}
		rest = rest[1+i+len(text):]
	}
	return rest != ""
}

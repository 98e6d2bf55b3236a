package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

func locksCommand(env *environment) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "Look at the locks in Redis, and release one by force",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usageError{errors.New("locks: which command? (one of those above)")}
		},
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print one JSON value")
	cmd.AddCommand(locksListCommand(env, &asJSON), locksShowCommand(env, &asJSON), locksReleaseCommand(env, &asJSON), locksAuditCommand(env, &asJSON))
	return cmd
}

func locksShowCommand(env *environment, asJSON *bool) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "show KEY|ORDER-ID|PART/ORDER-ID",
		Short:   "Show everything about one lock",
		Example: "  ordergate locks show order:lock:42\n  ordergate locks show --lock settlement 42\n  ordergate locks show --lock settlement acme/42",
		Args:    oneLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			locks, err := env.openLocksFor(name)
			if err != nil {
				return err
			}
			defer locks.close()
			reports, err := locks.inspect(cmd.Context(), name, args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, lockReports{reports})
			}
			return describe(env.stdout, reports)
		},
	}
	cmd.Flags().StringVar(&name, "lock", "", "the lock's name in the configuration; the argument may be an order ID then")
	return cmd
}

// oneLock accepts exactly one argument, not empty.
func oneLock(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError{fmt.Errorf("%s: want one key, got %d arguments", cmd.CommandPath(), len(args))}
	}
	return nil
}

// lockClient connects to the servers of the configured locks. Close it after use. It is not
// safe for concurrent use.
type lockClient struct {
	config *config.Config
	file   string
	redis  redis.UniversalClient // of all locks except quorums; connected on first use
	closes []func()
}

// lockServer is one of the servers that store a lock.
type lockServer struct {
	client  redis.UniversalClient
	address *string // of a quorum; nil: the lock has a single server
}

// onServer returns the address for the end of a message. It is empty for a single server.
func (s lockServer) onServer() string {
	if s.address == nil {
		return ""
	}
	return " on " + *s.address
}

// openLocksFor is openLocks for a command whose argument may be an order ID, if name is that of
// its lock. Rules say what an order ID is.
func (e *environment) openLocksFor(name string) (*lockClient, error) {
	if name != "" {
		return e.openLocks("rules")
	}
	return e.openLocks()
}

// openLocks reads the locks of the configuration, and those of the keys of rules (once: by). It
// also reads other sections.
func (e *environment) openLocks(sections ...string) (*lockClient, error) {
	c, err := e.loadPart(append(sections, "redis", "locks")...)
	if err != nil {
		return nil, err
	}
	if c.Locks == nil {
		c.Locks = make(map[string]config.Lock)
	}
	maps.Copy(c.Locks, locking.KeyLocks(c))
	if len(c.Locks) == 0 {
		return nil, usageError{fmt.Errorf("locks: %s has no locks", e.file)}
	}
	return &lockClient{config: c, file: e.file}, nil
}

func (d *lockClient) close() {
	for _, f := range d.closes {
		f()
	}
}

// servers returns the servers of a lock.
func (d *lockClient) servers(ctx context.Context, lock config.Lock) ([]lockServer, error) {
	if lock.Kind == config.LockQuorum {
		var servers []lockServer
		for _, address := range lock.Quorum.Addresses {
			client, closeClient, err := redisconn.Connect(ctx, redisconn.QuorumServer(d.config.Redis, address), 0)
			if err != nil {
				return nil, fmt.Errorf("locks: %w", err)
			}
			d.closes = append(d.closes, closeClient)
			servers = append(servers, lockServer{client, &address})
		}
		return servers, nil
	}
	if d.config.Redis.Mode == config.RedisEmbedded {
		return nil, usageError{fmt.Errorf("locks: %s has redis.mode %s: its locks are inside the serving process, and no other process can read them",
			d.file, config.RedisEmbedded)}
	}
	if d.redis == nil {
		client, closeClient, err := redisconn.Connect(ctx, d.config.Redis, 0)
		if err != nil {
			return nil, fmt.Errorf("locks: %w", err)
		}
		d.redis, d.closes = client, append(d.closes, closeClient)
	}
	return []lockServer{{client: d.redis}}, nil
}

// inspect reads one lock from all of its servers. It fails if no server answers. If some
// answer, the reports of the others have the state unreachable.
func (d *lockClient) inspect(ctx context.Context, name, keyOrID string) ([]lockReport, error) {
	name, key, err := d.resolve(name, keyOrID)
	if err != nil {
		return nil, err
	}
	lock := d.config.Locks[name]
	servers, err := d.servers(ctx, lock)
	if err != nil {
		return nil, err
	}
	reports, answered := make([]lockReport, len(servers)), 0
	for i, server := range servers {
		state, failed := redislock.Inspect(ctx, server.client, kindOf(lock), redislock.Format(lock.Format), key)
		if failed != nil {
			err = fmt.Errorf("locks: %w", failed)
			state = redislock.State{Key: key, Kind: kindOf(lock), Format: redislock.Format(lock.Format)}
		} else {
			answered++
		}
		reports[i] = newLockReport(name, lock, state, server)
		if failed != nil {
			reports[i].State, reports[i].Error = stateUnreachable, new(failed.Error())
		}
	}
	if answered == 0 {
		return nil, err
	}
	return reports, nil
}

// kindOf returns the kind of a lock on each of its servers.
func kindOf(lock config.Lock) redislock.Kind {
	if lock.Kind == config.LockQuorum {
		return redislock.Exclusive
	}
	return redislock.Kind(lock.Kind)
}

// resolve returns the name and the key of a lock. With a name, keyOrID is an order ID or a
// key. Without a name it is a key.
func (d *lockClient) resolve(name, keyOrID string) (lock, key string, err error) {
	if name == "" {
		name, err = d.nameOf(keyOrID)
		return name, keyOrID, err
	}
	if err := d.requireLock(name); err != nil {
		return "", "", fmt.Errorf("locks: %w", err)
	}
	template := d.config.LockKey(name)
	// A text is the key of some order, even of one that no rule accepts: Java may have locked it.
	// But if a key begins with a variable, any ID may look like one.
	isKey, mayBeID := matchesTemplate(template, keyOrID), template.Texts[0] == ""
	if isKey && !mayBeID {
		return name, keyOrID, nil
	}
	key, err = d.keyOf(name, keyOrID)
	if err != nil && isKey {
		return name, keyOrID, nil
	}
	return name, key, err
}

// keyOf returns the key of a lock of an order ID with its parts.
func (d *lockClient) keyOf(name, id string) (string, error) {
	takers := takersOf(d.config, name)
	switch {
	case strings.HasPrefix(name, config.OnceLock+":"):
		return "", usageError{fmt.Errorf("locks: %q is no key of lock %s: give one that locks list shows, which has a hash", visible(id), name)}
	case len(takers) == 0: // no rule says what an ID is
		return d.config.LockKey(name).Key(func(string) string { return id }), nil
	}
	canonical, rule, err := canonicalID(id, "lock "+name, takers...)
	if err != nil {
		return "", fmt.Errorf("locks: %w", err)
	}
	return orderKey(d.config, name, rule, canonical), nil
}

// requireLock returns a usageError if the configuration has no lock of this name.
func (d *lockClient) requireLock(name string) error {
	if _, ok := d.config.Locks[name]; ok {
		return nil
	}
	names := slices.Sorted(maps.Keys(d.config.Locks))
	return usageError{fmt.Errorf("--lock %q is not in %s, which has %s", name, d.file, strings.Join(names, ", "))}
}

// nameOf returns the name of the lock whose template matches a key. If several match, it
// returns the lock with the longest text around the ID. The configuration prevents locks of
// different kinds from sharing a key, so the other templates do not match a real ID. The
// sides of a read-write lock share a template; nameOf returns either.
func (d *lockClient) nameOf(key string) (string, error) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.config.Locks)) {
		if matchesTemplate(d.config.LockKey(name), key) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", usageError{fmt.Errorf("locks: %q is the key of no lock in %s (for an order ID, add --lock)", visible(key), d.file)}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(len(d.config.Locks[b].Key), len(d.config.Locks[a].Key))
	})
	best := d.config.Locks[names[0]].Key
	for _, name := range names[1:] {
		if other := d.config.Locks[name].Key; len(other) == len(best) && other != best {
			return "", usageError{fmt.Errorf("locks: %q may be a key of %s or %s: say which with --lock", visible(key), names[0], name)}
		}
	}
	return names[0], nil
}

// matchesTemplate reports whether some ID turns the template into the key.
func matchesTemplate(template config.KeyTemplate, key string) bool {
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

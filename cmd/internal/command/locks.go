package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/lockreport"
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

// lockReports is what locks show prints as JSON: one report for each server of the lock.
type lockReports struct {
	Locks []lockreport.Lock `json:"locks"`
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
			defer locks.Close()
			reports, err := locks.inspect(cmd.Context(), name, args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, lockReports{reports})
			}
			return lockreport.Describe(env.stdout, reports)
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

// lockClient is the client of the configured locks, with the file of their configuration.
type lockClient struct {
	*lockreport.Client
	file string
}

// The states of a lock, and of what is beside it.
const (
	stateFree        = lockreport.StateFree
	stateHeld        = lockreport.StateHeld
	stateOther       = lockreport.StateOther
	stateUnreachable = lockreport.StateUnreachable
)

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
	d := &lockClient{lockreport.New(c, nil), e.file}
	if len(d.Config.Locks) == 0 {
		return nil, usageError{fmt.Errorf("locks: %s has no locks", e.file)}
	}
	return d, nil
}

// inspect reads one lock from all of its servers, as [lockreport.Client.Inspect] does.
func (d *lockClient) inspect(ctx context.Context, name, keyOrID string) ([]lockreport.Lock, error) {
	name, key, err := d.resolve(name, keyOrID)
	if err != nil {
		return nil, err
	}
	reports, err := d.Inspect(ctx, name, key)
	return reports, d.usage(err)
}

// Servers returns the servers of a lock.
func (d *lockClient) Servers(ctx context.Context, lock config.Lock) ([]lockreport.Server, error) {
	servers, err := d.Client.Servers(ctx, lock)
	return servers, d.usage(err)
}

// usage returns an error that says which file has locks that no other process can read.
func (d *lockClient) usage(err error) error {
	if errors.Is(err, lockreport.ErrEmbedded) {
		return usageError{fmt.Errorf("locks: %s has redis.mode %s: %w", d.file, config.RedisEmbedded, err)}
	}
	return err
}

// resolve returns the name and the key of a lock. With a name, keyOrID is an order ID or a
// key. Without a name it is a key.
func (d *lockClient) resolve(name, keyOrID string) (lock, key string, err error) {
	if name == "" {
		if name, err = d.NameOf(keyOrID); err != nil {
			err = usageError{fmt.Errorf("locks: %w, by %s: say which lock with --lock, which takes an order ID, too", err, d.file)}
		}
		return name, keyOrID, err
	}
	if err := d.requireLock(name); err != nil {
		return "", "", fmt.Errorf("locks: %w", err)
	}
	template := d.Config.LockKey(name)
	// A text is the key of some order, even of one that no rule accepts: Java may have locked it.
	// But if a key begins with a variable, any ID may look like one.
	isKey, mayBeID := lockreport.MatchesTemplate(template, keyOrID), template.Texts[0] == ""
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
	takers := takersOf(d.Config, name)
	switch {
	case strings.HasPrefix(name, config.OnceLock+":"):
		return "", usageError{fmt.Errorf("locks: %q is no key of lock %s: give one that locks list shows, which has a hash", visible(id), name)}
	case len(takers) == 0: // no rule says what an ID is
		return d.Config.LockKey(name).Key(func(string) string { return id }), nil
	}
	canonical, rule, err := canonicalID(id, "lock "+name, takers...)
	if err != nil {
		return "", fmt.Errorf("locks: %w", err)
	}
	return orderKey(d.Config, name, rule, canonical), nil
}

// requireLock returns a usageError if the configuration has no lock of this name.
func (d *lockClient) requireLock(name string) error {
	if _, ok := d.Config.Locks[name]; ok {
		return nil
	}
	return usageError{fmt.Errorf("--lock %q is not in %s, which has %s", name, d.file, strings.Join(d.Names(), ", "))}
}

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

func onceCommand(env *environment) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "once",
		Short: "Look at the stored answers of an order, and forget them",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usageError{errors.New("once: which command? (one of those above)")}
		},
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print one JSON value")
	cmd.AddCommand(
		onceOrderCommand(env, &asJSON, "show", "Show the stored answers of an order", showStored),
		onceForgetCommand(env, &asJSON),
	)
	return cmd
}

func onceForgetCommand(env *environment, asJSON *bool) *cobra.Command {
	var by operator
	forget := func(ctx context.Context, client redis.UniversalClient, s *storedReport) (bool, error) {
		return forgetStored(ctx, client, s, by.reason, env.stderr)
	}
	cmd := onceOrderCommand(env, asJSON, "forget", "Delete the stored answers of an order: its next settlement reaches the backend", forget)
	cmd.PreRunE = func(*cobra.Command, []string) error { return by.check("once forget") }
	by.flag(cmd)
	return cmd
}

// storedReport is one stored answer, as the commands print it.
type storedReport struct {
	Lock string `json:"lock"`
	Name string `json:"name"`
	explain.AnswerState
	Bytes int `json:"bytes"` // of all that is stored; 0 after forget

	lockKey string
}

// String describes the answer in one line.
func (s storedReport) String() string {
	return fmt.Sprintf("%s of lock %s  %s", s.Name, s.Lock, s.AnswerState)
}

// onStored acts on the stored answer at a place, and reports whether there was one.
type onStored func(context.Context, redis.UniversalClient, *storedReport) (found bool, err error)

// onceOrderCommand is a command for the stored answers of one order.
func onceOrderCommand(env *environment, asJSON *bool, verb, short string, do onStored) *cobra.Command {
	var lock string
	cmd := &cobra.Command{
		Use:     verb + " [PART/]ORDER-ID",
		Short:   short,
		Example: "  ordergate once " + verb + " 42",
		Args:    oneLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.loadPart("redis", "locks", "rules")
			if err != nil {
				return err
			}
			locks := &lockClient{&lockreport.Client{Config: c}, env.file}
			defer locks.Close()
			places, others, err := locks.storedPlaces(lock, args[0])
			if err != nil {
				return fmt.Errorf("once %s: %w", verb, err)
			}
			found, err := locks.eachStored(cmd.Context(), places, do)
			switch {
			case err != nil:
				return fmt.Errorf("once %s: %w", verb, err)
			case *asJSON:
				return admin.WriteJSON(env.stdout, map[string][]storedReport{"stored": found})
			case len(found) == 0:
				fmt.Fprintln(env.stdout, "no answer is stored")
				for _, other := range others {
					fmt.Fprintln(env.stdout, other)
				}
			}
			for _, s := range found {
				fmt.Fprintln(env.stdout, s)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&lock, "lock", "", "the lock's name in the configuration; default all locks of rules that store answers")
	return cmd
}

// storedPlaces returns where the answers of an order may be stored: beside the locks of the rules
// that accept its ID. Others has an error for each other rule. If no rule accepts the ID,
// storedPlaces returns a usageError.
func (d *lockClient) storedPlaces(lock, id string) (places []storedReport, others []error, err error) {
	if lock != "" {
		if err := d.requireLock(lock); err != nil {
			return nil, nil, err
		}
	}
	var storing []*config.Rule
	for i := range d.Config.Rules {
		r := &d.Config.Rules[i]
		o, _ := r.ByOrder()
		if o == nil || o.Name == "" || lock != "" && r.OrderLock() != lock || r.Mode.String() == config.ModeObserve {
			continue
		}
		storing = append(storing, r)
		canonical, _, err := canonicalID(id, "rule "+r.Name, r)
		if err != nil {
			others = append(others, err)
			continue
		}
		key := orderKey(d.Config, r.OrderLock(), r, canonical)
		place := storedReport{Lock: r.OrderLock(), Name: o.Name, AnswerState: explain.AnswerState{Key: redislock.StoredKey(key, o.Name)}, lockKey: key}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	switch {
	case len(storing) == 0 && lock != "":
		return nil, nil, usageError{fmt.Errorf("no rule of %s stores the answers of orders beside lock %s", d.file, lock)}
	case len(storing) == 0:
		return nil, nil, usageError{fmt.Errorf("no rule of %s stores the answers of orders", d.file)}
	case len(places) == 0:
		_, _, err = canonicalID(id, "a rule that stores answers", storing...)
	}
	return places, others, err
}

// showStored reads a stored answer, without its body.
func showStored(ctx context.Context, client redis.UniversalClient, s *storedReport) (found bool, err error) {
	s.AnswerState, s.Bytes = explain.ReadAnswer(ctx, client, gate.AnswerPlace{LockKey: s.lockKey, Name: s.Name})
	if s.State == stateUnreachable {
		return false, errors.New(*s.Error)
	}
	return s.State != explain.StateNone, nil
}

// forgetStored deletes a stored answer, and appends an audit entry. It prints an error of the
// audit to stderr and goes on, because a full Redis refuses the entry.
func forgetStored(ctx context.Context, client redis.UniversalClient, s *storedReport, reason string, stderr io.Writer) (found bool, err error) {
	n, err := redislock.ForgetStored(ctx, client, s.lockKey, s.Name)
	if err != nil || n == 0 {
		return false, err
	}
	s.State = explain.StateForgotten
	entry := audit.Entry{Who: operatorName(), Action: audit.Forgot, Lock: s.Lock, Key: s.Key, Reason: reason}
	if err := audit.Append(ctx, client, entry); err != nil {
		fmt.Fprintf(stderr, "once forget: forgotten, and ordergate locks audit will not show it: %v\n", err)
	}
	return true, nil
}

// eachStored calls do for each place, and returns those where it found an answer.
func (d *lockClient) eachStored(ctx context.Context, places []storedReport, do onStored) (found []storedReport, err error) {
	for _, s := range places {
		servers, err := d.Servers(ctx, d.Config.Locks[s.Lock])
		if err != nil {
			return nil, err
		}
		there, err := do(ctx, servers[0].Client, &s)
		if err != nil {
			return nil, err
		}
		if there {
			found = append(found, s)
		}
	}
	return found, nil
}

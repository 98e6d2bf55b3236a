package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/latch"
	"github.com/ordergate/ordergate/internal/redisconn"
)

func latchCommand(env *environment) *cobra.Command {
	o := &latchOptions{env: env}
	cmd := &cobra.Command{
		Use:   "latch",
		Short: "Look at a countdown latch that settlements require, set it, and count it down",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usageError{errors.New("latch: which command? (one of those above)")}
		},
	}
	cmd.PersistentFlags().BoolVar(&o.asJSON, "json", false, "print one JSON value")
	cmd.PersistentFlags().StringVar(&o.rule, "rule", "", "a rule that requires the latch: the argument is an order ID then")
	cmd.AddCommand(latchShowCommand(o), latchCountDownCommand(o), latchSetCommand(o))
	return cmd
}

// latchOptions are what the commands for a latch have in common.
type latchOptions struct {
	env    *environment
	asJSON bool
	rule   string
}

func latchShowCommand(o *latchOptions) *cobra.Command {
	return &cobra.Command{
		Use:     "show KEY|ORDER-ID",
		Short:   "Show whether a latch is open, and its count",
		Example: "  ordergate latch show loaders:42\n  ordergate latch show --rule commission-settle 42",
		Args:    oneLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0], func(ctx context.Context, client redis.UniversalClient, key string) (latchReport, error) {
				state, err := latch.Read(ctx, client, key)
				return newLatchReport(state, nil), err
			})
		},
	}
}

func latchCountDownCommand(o *latchOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "count-down KEY|ORDER-ID",
		Short: "Count a latch down by 1, as countDown does in Java",
		Long: "Count a latch down by 1, as countDown does in Java. At 0 it is open, and its key is deleted.\n" +
			"A latch that does not exist stays as it is.",
		Example: "  ordergate latch count-down loaders:42",
		Args:    oneLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0], func(ctx context.Context, client redis.UniversalClient, key string) (latchReport, error) {
				state, heard, err := latch.CountDown(ctx, client, key)
				return newLatchReport(state, &heard), err
			})
		},
	}
}

func latchSetCommand(o *latchOptions) *cobra.Command {
	set := &latchSet{env: o.env}
	cmd := &cobra.Command{
		Use:   "set KEY|ORDER-ID COUNT",
		Short: "Set the count of a latch, as trySetCount does in Java",
		Long: "Set the count of a latch, as trySetCount does in Java. It fails if the latch has a count,\n" +
			"except with --replace. With --replace, the count 0 opens the latch.",
		Example: "  ordergate latch set loaders:42 3\n  ordergate latch set loaders:42 0 --replace --reason \"loader 2 is gone\"",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] == "" {
				return usageError{fmt.Errorf("%s: want a key and a count, got %d arguments", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if set.count, err = strconv.ParseInt(args[1], 10, 64); err != nil || set.count < 0 {
				return usageError{fmt.Errorf("latch set: %q is no count: want a number from 0", args[1])}
			}
			if set.reason != "" && !set.replace {
				return usageError{errors.New("latch set: --reason is for --replace, which is on record")}
			}
			if err := set.check("latch set"); err != nil {
				return err
			}
			return o.run(cmd.Context(), args[0], set.run)
		},
	}
	cmd.Flags().BoolVar(&set.replace, "replace", false, "set it also if it has a count")
	set.flag(cmd)
	return cmd
}

// latchSet is one run of latch set.
type latchSet struct {
	operator
	env     *environment
	count   int64
	replace bool
}

// run sets the latch. A replacement is on record in the audit. If Redis refuses the entry, run
// prints that and goes on.
func (s *latchSet) run(ctx context.Context, client redis.UniversalClient, key string) (latchReport, error) {
	heard, err := latch.Set(ctx, client, key, s.count, s.replace)
	if errors.Is(err, latch.ErrExists) {
		err = fmt.Errorf("%w (--replace gives it another count)", err)
	}
	if err == nil && s.replace {
		entry := audit.Entry{Who: operatorName(), Action: audit.LatchSet, Key: key, Count: s.count, Reason: s.reason}
		if err := audit.Append(ctx, client, entry); err != nil {
			fmt.Fprintf(s.env.stderr, "latch set: set, and ordergate locks audit will not show it: %v\n", err)
		}
	}
	return newLatchReport(latch.State{Key: key, Count: s.count, Exists: s.count > 0}, &heard), err
}

// latchReport is a latch, as the commands print it.
type latchReport struct {
	Key    string `json:"key"` // bytes outside visible ASCII are written \xNN
	Open   bool   `json:"open"`
	Exists bool   `json:"exists"`
	Count  int64  `json:"count"`
	Heard  *int   `json:"heard"` // number of waiters that Redis notified; null for show
}

func newLatchReport(s latch.State, heard *int) latchReport {
	return latchReport{Key: visible(s.Key), Open: s.Open(), Exists: s.Exists, Count: s.Count, Heard: heard}
}

// String describes the latch in one line.
func (r latchReport) String() string {
	text := r.Key + ": closed, count " + strconv.FormatInt(r.Count, 10)
	switch {
	case !r.Exists:
		text = r.Key + ": open, no key"
	case r.Open:
		text = r.Key + ": open, count " + strconv.FormatInt(r.Count, 10)
	}
	if r.Heard != nil {
		text += fmt.Sprintf("; waiters notified: %d", *r.Heard)
	}
	return text
}

// onLatch reads or changes a latch.
type onLatch func(ctx context.Context, client redis.UniversalClient, key string) (latchReport, error)

// run calls do with the key of the latch that keyOrID names, and prints the report.
func (o *latchOptions) run(ctx context.Context, keyOrID string, do onLatch) error {
	c, err := o.env.loadPart("redis", "rules")
	if err != nil {
		return err
	}
	key, err := latchKey(c, o.env.file, o.rule, keyOrID)
	switch {
	case err != nil:
		return usageError{fmt.Errorf("latch: %w", err)}
	case c.Redis == nil:
		return usageError{fmt.Errorf("latch: %s has no redis", o.env.file)}
	case c.Redis.Mode == config.RedisEmbedded:
		return usageError{fmt.Errorf("latch: %s has redis.mode %s: its latches are inside the serving process, and no other process can reach them",
			o.env.file, config.RedisEmbedded)}
	}
	client, closeClient, err := redisconn.Connect(ctx, c.Redis, 0)
	if err != nil {
		return fmt.Errorf("latch: %w", err)
	}
	defer closeClient()
	report, err := do(ctx, client, key)
	switch {
	case err != nil:
		return fmt.Errorf("latch: %w", err)
	case o.asJSON:
		return admin.WriteJSON(o.env.stdout, report)
	}
	_, err = fmt.Fprintln(o.env.stdout, report)
	return err
}

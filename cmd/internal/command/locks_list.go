package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/internal/admin"
)

// defaultLimit is the number of entries that a person may read.
const defaultLimit = 100

func locksListCommand(env *environment, asJSON *bool) *cobra.Command {
	var name string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks that are held, the oldest first",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usageError{errors.New("locks list: --limit is negative: give how many locks to list, or 0 for all")}
			}
			locks, err := env.openLocks()
			if err != nil {
				return err
			}
			defer locks.Close()
			names := []string{name}
			if name == "" {
				names = locks.Names()
			} else if err := locks.requireLock(name); err != nil {
				return fmt.Errorf("locks: %w", err)
			}
			l, err := locks.List(cmd.Context(), limit, func(err error) { fmt.Fprintln(env.stderr, err) }, names...)
			if err != nil {
				return locks.usage(err)
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, l)
			}
			return l.Print(env.stdout)
		},
	}
	cmd.Flags().StringVar(&name, "lock", "", "only the locks of this name in the configuration")
	cmd.Flags().IntVar(&limit, "limit", defaultLimit, "how many to print at most, 0 for all")
	return cmd
}

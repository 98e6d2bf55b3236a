package command

import (
	"errors"

	"github.com/spf13/cobra"
)

func filterCommand(env *environment) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "Look at a filter of order IDs, change it, and choose its size",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usageError{errors.New("filter: which command? (one of those above)")}
		},
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print one JSON value")
	for _, command := range []func(env *environment, asJSON *bool) *cobra.Command{
		filterInfoCommand,
		filterContainsCommand,
		filterAddCommand,
		filterExpandCommand,
		filterTrustCommand,
		filterSnapshotCommand,
	} {
		cmd.AddCommand(named(command(env, &asJSON)))
	}
	cmd.AddCommand(filterSizeCommand(env, &asJSON))
	return cmd
}

// named adds --filter, which replaces the first argument.
func named(cmd *cobra.Command) *cobra.Command {
	var name string
	cmd.Flags().StringVar(&name, "filter", "", "the filter, in place of NAME")
	run, check := cmd.RunE, cmd.Args
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if name != "" {
			args = append([]string{name}, args...)
		}
		if check != nil {
			if err := check(cmd, args); err != nil {
				return err
			}
		}
		return run(cmd, args)
	}
	return cmd
}

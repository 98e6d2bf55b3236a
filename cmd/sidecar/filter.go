package main

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
		filterSizeCommand,
		filterSnapshotCommand,
	} {
		cmd.AddCommand(command(env, &asJSON))
	}
	return cmd
}

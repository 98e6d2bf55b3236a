package command

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/internal/admin"
)

func filterSnapshotCommand(env *environment, asJSON *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "snapshot NAME",
		Short:   "Make the running ordergate write a snapshot of a filter now",
		Example: "  ordergate filter snapshot orders\n  ordergate filter snapshot inspect /var/lib/ordergate/orders.snap",
		Args:    oneArgument("filter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.loadPart(adminKeys...)
			if err != nil {
				return err
			}
			if f, ok := c.Filters[args[0]]; ok && f.Snapshot == nil {
				return usageError{fmt.Errorf("filter snapshot: filters.%s in %s has no snapshot", args[0], env.file)}
			}
			var report admin.SnapshotReport
			if err := env.callAdmin(cmd.Context(), c, http.MethodPost, args[0], "/snapshot", nil, &report); err != nil {
				return fmt.Errorf("filter snapshot: %w", err)
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, report)
			}
			upTo := ""
			if report.Position != nil {
				upTo = fmt.Sprintf(", up to entry %d of the change log", *report.Position)
			}
			_, err = fmt.Fprintf(env.stdout, "%s: %d IDs in %d bytes%s, in %v\n",
				report.Path, report.IDs, report.Bytes, upTo, report.Took)
			return err
		},
	}
	cmd.AddCommand(filterInspectCommand(env, asJSON))
	return cmd
}

// oneArgument accepts exactly one argument, not empty. The error names it by what.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usageError{fmt.Errorf("%s: want one %s, got %d arguments", cmd.CommandPath(), what, len(args))}
		}
		return nil
	}
}

package command

import (
	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
)

func schemaCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file, for editors",
		Long: "Print the JSON Schema (2020-12) of the configuration file. An editor with a YAML language\n" +
			"server completes and checks keys and values with it, if the file begins with\n" +
			"# yaml-language-server: $schema=ordergate.schema.json\n\n" +
			"check knows more: what several keys have to agree on.",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error { return admin.WriteJSON(env.stdout, config.Schema()) },
	}
}

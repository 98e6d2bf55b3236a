package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/engine"
)

func configCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration in force, or what another file would change",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usageError{errors.New("config: which command? (one of those above)")}
		},
	}
	cmd.AddCommand(configShowCommand(env), configDiffCommand(env))
	return cmd
}

// effective loads a file with the origins of its values.
func (env *environment) effective(file string) (*config.Effective, error) {
	e, err := config.LoadEffective(file, config.Options{Getenv: env.getenv, WithoutDSN: true})
	if err != nil {
		return nil, usageError{err}
	}
	return e, nil
}

func configShowCommand(env *environment) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print every value in force, and what set it: a line, a variable or a default",
		Long: "Print every value in force as a file, with what set it in a comment: a line of the file, an\n" +
			"environment variable, or a default. ordergate reads the same configuration from what it prints.\n" +
			"Of passwords and other secrets, it prints where they are.",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			e, err := env.effective(env.file)
			if err != nil {
				return err
			}
			if asJSON {
				return admin.WriteJSON(env.stdout, e.Settings())
			}
			_, err = e.WriteTo(env.stdout)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array of path, value, and line or variable (neither: a default)")
	return cmd
}

func configDiffCommand(env *environment) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Print what changes from one file to another, and whether a reload does it",
		Long: "Print what changes from one file to another, with defaults and variables, and whether a reload\n" +
			"does it. Exit code 1: it takes a restart, since a reload refuses the whole file. Exit code 0:\n" +
			"a reload does all of it, or nothing changes. What is said of a restart is for calls that run\n" +
			"under OLD; a reload also looks at calls of earlier files.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError{fmt.Errorf("%s: give two files, OLD and NEW", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			was, err := env.effective(args[0])
			if err != nil {
				return err
			}
			is, err := env.effective(args[1])
			if err != nil {
				return err
			}
			restart := append([]string{}, engine.TakesRestart(was.Config, is.Config)...)
			differences := was.Differences(is)
			if asJSON {
				err = admin.WriteJSON(env.stdout, admin.ConfigChanges{Changes: differences, Restart: restart})
			} else {
				for _, d := range differences {
					fmt.Fprintln(env.stdout, d)
				}
			}
			if err == nil && len(restart) > 0 {
				err = engine.RestartError(restart)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: changes, and the paths that take a restart")
	return cmd
}

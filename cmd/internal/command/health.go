package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout bounds the whole question: container runtimes give a check 30 s by default.
const healthTimeout = 5 * time.Second

func healthCommand(env *environment) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the running ordergate whether it is alive: exit status 0 if it is",
		Long: "Ask the running ordergate at listen.admin whether it is alive: the exit status is 0 if it is.\n\n" +
			"An image has no shell: this is the health check of its container. With --ready the question is\n" +
			"that of /readyz, whose reasons it prints.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.loadPart(adminKeys...)
			if err != nil {
				return err
			}
			if c.Listen.Admin == "" {
				return usageError{fmt.Errorf("%s has no listen.admin, so ordergate cannot be called", env.file)}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
			if err != nil {
				return err
			}
			response, err := adminRoundTrip(c.Listen.Admin, request)
			if err != nil {
				return err
			}
			defer response.Body.Close() // its error does not matter: the body is only read
			text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
			if err == nil && response.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", response.Status, text)
			}
			if ready && err == nil {
				_, err = env.stdout.Write(text)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready, and why not")
	return cmd
}

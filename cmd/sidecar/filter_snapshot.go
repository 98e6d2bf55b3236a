package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func filterSnapshotCommand(env *environment, asJSON *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "snapshot NAME",
		Short:   "Have the ordergate that runs write a snapshot of a filter now",
		Example: "  ordergate filter snapshot orders\n  ordergate filter snapshot inspect /var/lib/ordergate/orders.snap",
		Args:    oneOf("filter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.load()
			if err != nil {
				return err
			}
			f, ok := c.Filters[args[0]]
			switch {
			case !ok:
				return usageError{fmt.Errorf("filter snapshot: %s has no filter %q", env.file, args[0])}
			case f.Snapshot == nil:
				return usageError{fmt.Errorf("filter snapshot: filters.%s in %s has no snapshot", args[0], env.file)}
			case c.Listen.Admin == "":
				return usageError{fmt.Errorf("filter snapshot: %s has no listen.admin, where ordergate could be asked", env.file)}
			}
			report, err := askForSnapshot(cmd.Context(), c.Listen.Admin, args[0])
			if err != nil {
				return fmt.Errorf("filter snapshot: %w", err)
			}
			if *asJSON {
				return printJSON(env.stdout, report)
			}
			upTo := ""
			if report.Position != nil {
				upTo = fmt.Sprintf(", up to entry %d of the change log", *report.Position)
			}
			_, err = fmt.Fprintf(env.stdout, "%s: %d IDs in %d bytes%s, in %v\n",
				report.Path, report.IDs, report.Bytes, upTo, time.Duration(report.TookMS)*time.Millisecond)
			return err
		},
	}
	cmd.AddCommand(filterInspectCommand(env, asJSON))
	return cmd
}

// oneOf wants one argument.
func oneOf(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usageError{fmt.Errorf("%s: want one %s, got %d arguments", cmd.CommandPath(), what, len(args))}
		}
		return nil
	}
}

// askForSnapshot asks the ordergate that listens there. It takes as long as the disk
// does, so only the connection has a time limit.
func askForSnapshot(ctx context.Context, admin, name string) (report snapshotReport, err error) {
	network, address := "tcp", admin
	if path, ok := strings.CutPrefix(admin, "unix:"); ok {
		network, address = "unix", path
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: redisTimeout}).DialContext(ctx, network, address)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://ordergate/filters/"+name+"/snapshot", nil)
	if err != nil {
		return report, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return report, fmt.Errorf("asking the ordergate at %s: %w", admin, err)
	}
	defer response.Body.Close()
	const mostReply = 64 << 10
	body, err := io.ReadAll(io.LimitReader(response.Body, mostReply))
	if err != nil {
		return report, fmt.Errorf("asking the ordergate at %s: %w", admin, err)
	}
	if response.StatusCode != http.StatusOK {
		var refused refusal
		if json.Unmarshal(body, &refused) == nil && refused.Error != "" {
			return report, errors.New(refused.Error)
		}
		return report, fmt.Errorf("asking what listens at %s: it answered %s", admin, response.Status)
	}
	if err := json.Unmarshal(body, &report); err != nil {
		return report, fmt.Errorf("reading the answer of %s: %w", admin, err)
	}
	return report, nil
}

package command

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/attach"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/envoyfile"
	"github.com/ordergate/ordergate/internal/lazyregexp"
)

func envoyCommand(env *environment) *cobra.Command {
	o := envoyfile.Options{}
	var backendTime time.Duration
	var check, out string
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Print the configuration of Envoy, or of another proxy, that fits the file",
		Long: "Print the configuration of Envoy, or of another proxy, that fits the file: with the filters,\n" +
			"routes, clusters and timeouts that its rules need, and the reason of each line.\n\n" +
			"With --check it compares a configuration of Envoy with the file instead: a bootstrap, a saved\n" +
			"/config_dump, or that of a running Envoy at its admin address (http://127.0.0.1:9901). It prints\n" +
			"each difference, its consequence and the line to write, and exits with 1 if there is any.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains(envoyfile.Targets, o.Target):
				return usageError{fmt.Errorf("--for: %q is not one of %s", o.Target, strings.Join(envoyfile.Targets, ", "))}
			case o.Connections < 2 || o.Connections > 1_000_000:
				return usageError{errors.New("--connections: must be from 2 to 1,000,000")}
			case check != "" && out != "":
				return usageError{errors.New("--check prints no configuration: leave out --out")}
			case !supported.MatchString(o.Envoy):
				return usageError{fmt.Errorf("--envoy-version: %q is not 1.37 or newer, such as 1.40", o.Envoy)}
			case backendTime < 0 || backendTime > time.Hour:
				return usageError{errors.New("--backend-time: must be from 0s to 1h")}
			}
			plan, err := env.plan(backendTime)
			if err != nil {
				return err
			}
			if check != "" {
				return checkEnvoy(cmd.Context(), env, check, plan, backendTime)
			}
			if o.Listen == "" {
				o.Listen = "127.0.0.1:10000"
				if o.Target == envoyfile.Nginx || o.Target == envoyfile.Caddy {
					o.Listen = "127.0.0.1:8000"
				}
			}
			o.File = env.file
			o.Command = "ordergate envoy --config " + env.file + " --for " + o.Target
			var text bytes.Buffer
			err = envoyfile.Write(&text, plan, o)
			var unfit *envoyfile.UnfitError
			switch {
			case errors.As(err, &unfit) && unfit.Flag == "":
				return usageError{fmt.Errorf("%s: %w", env.file, err)}
			case unfit != nil:
				return usageError{err}
			case err == nil && out != "":
				err = writeWhole(out, text.Bytes())
			case err == nil:
				_, err = text.WriteTo(env.stdout)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Target, "for", envoyfile.Static, "one of "+strings.Join(envoyfile.Targets, ", "))
	cmd.Flags().StringVar(&o.Backend, "backend", "127.0.0.1:8080", "host:port of the order service")
	cmd.Flags().IntVar(&o.Connections, "connections", 32, "how many requests the order service works on at once: its workers")
	cmd.Flags().DurationVar(&backendTime, "backend-time", 0, "how long the order service takes for a write at most (default 25s, or less if a lock is held for less)")
	cmd.Flags().StringVar(&o.Behind, "behind", "127.0.0.1:10000", "host:port of the Envoy to which nginx, Caddy, Traefik and APISIX send what they cannot serve")
	cmd.Flags().StringVar(&o.Listen, "listen", "", "host:port for clients (default 127.0.0.1:10000, or 127.0.0.1:8000 for nginx and Caddy)")
	cmd.Flags().StringVar(&o.Admin, "admin", "127.0.0.1:9901", "host:port of Envoy's admin address")
	cmd.Flags().StringVar(&o.Envoy, "envoy-version", "", "Envoy's version, such as 1.40; only 1.37 makes a difference")
	cmd.Flags().StringVar(&out, "out", "", "the file to write, whole or not at all, in place of standard output")
	cmd.Flags().StringVar(&check, "check", "", "the configuration to compare: a file, - for standard input, or an admin address")
	return cmd
}

// supported matches versions of Envoy.
var supported = lazyregexp.New(`^(?:v?1\.(?:3[7-9]|[4-9][0-9])(?:\.[0-9]+)?)?$`)

// writeWhole replaces a file, which others may read.
func writeWhole(path string, text []byte) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("writing %s: is a directory", path)
	}
	aside, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*")
	var of *fs.PathError
	if errors.As(err, &of) {
		return fmt.Errorf("writing %s: %w", path, of.Err)
	} else if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = aside.Write(text)
	if err = errors.Join(err, aside.Chmod(0o644), aside.Close()); err == nil {
		err = os.Rename(aside.Name(), path)
	}
	if err != nil {
		_ = os.Remove(aside.Name())
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// plan reads the file, and returns what its rules need of Envoy.
func (e *environment) plan(backendTime time.Duration) (attach.Plan, error) {
	c, _, err := engine.LoadConfigWith(e.file, config.Options{Getenv: e.getenv, WithoutDSN: true, Environ: e.environ()})
	if err != nil {
		return attach.Plan{}, usageError{err}
	}
	plan, err := attach.Of(c, backendTime)
	if err != nil {
		return attach.Plan{}, usageError{fmt.Errorf("%s: %w", e.file, err)}
	}
	return plan, nil
}

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/bundle"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/runbook"
)

// environment holds the inputs and outputs that all commands share.
type environment struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	environ        func() []string // all variables, in the form of os.Environ
	file           string          // --config
}

// defaultFile is --config without the flag.
const defaultFile = "ordergate.yaml"

func newCommand(stdout, stderr io.Writer, getenv func(string) string) *cobra.Command {
	env := &environment{stdout: stdout, stderr: stderr, getenv: getenv, environ: os.Environ}
	root := &cobra.Command{
		Use:           "ordergate",
		Short:         "Guards order services behind Envoy: lookups, creates and settlements",
		Version:       versionText(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usageError{errors.New("ordergate: which command? (one of those above)")}
		},
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if cmd.Name() != "check" || cmd.Flag("live").Changed { // a check of a file connects to nothing
				trustAuthorities()
			}
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("ordergate {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{errors.New(cmd.CommandPath() + ": " + strings.Replace(err.Error(), "strconv.ParseInt: parsing ", "", 1))}
	})
	root.PersistentFlags().StringVar(&env.file, "config", defaultFile, "the configuration file")
	root.AddCommand(serveCommand(env), checkCommand(env), schemaCommand(env), configCommand(env), explainCommand(env), replayCommand(env), envoyCommand(env), doctorCommand(env), grantsCommand(env), initCommand(env), loadCommand(env), filterCommand(env), locksCommand(env), onceCommand(env), latchCommand(env), bundleCommand(env), healthCommand(env), versionCommand(env))
	root.CompletionOptions.HiddenDefaultCmd = true
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				of, rest, _ := root.Find(args)
				return noArguments(of, rest)
			}
		case "completion":
			for _, shell := range cmd.Commands() {
				shell.Args = noArguments
			}
		}
	}
	return root
}

// noArguments is cobra.NoArgs with a usageError.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		hint := "ordergate help lists the commands"
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 && args[0] != "" {
			hint = "did you mean " + near[0] + "?"
		}
		return usageError{fmt.Errorf("%s: unknown argument %q (%s)", cmd.CommandPath(), args[0], hint)}
	}
	return nil
}

func serveCommand(env *environment) *cobra.Command {
	var opts serveOptions
	var level, format string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the sidecar until SIGTERM or SIGINT; SIGHUP reloads the file",
		Long: "Run the sidecar until SIGTERM or SIGINT; SIGHUP reloads the file.\n" +
			"With OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER set, it sends traces, as\n" +
			"the variables of OpenTelemetry say.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Notify comes first. Without it, SIGHUP ends the process.
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			again := make(chan os.Signal, 1) // a second SIGTERM does not end the process: see Main
			signal.Notify(again, os.Interrupt, syscall.SIGTERM)
			defer signal.Stop(again)
			signal.Ignore(syscall.SIGPIPE) // or the process would end with the reader of its log
			defer signal.Reset(syscall.SIGPIPE)
			var recent bundle.Log
			direct, err := newLogger(env.stderr, level, format)
			if err != nil {
				return usageError{err}
			}
			out := newLogWriter(env.stderr, direct)
			defer out.Close()
			log, _ := newLogger(io.MultiWriter(&recent, out), level, format)
			if opts.delay < 0 || opts.drain < 0 {
				return usageError{errors.New("--drain-delay and --drain: must be at least 0s")}
			}
			e, err := engine.LoadEffective(env.file, config.Options{Getenv: env.getenv, Environ: env.environ()})
			if err != nil {
				return usageError{err}
			}
			aside := e.Warnings
			for _, v := range aside.Variables {
				log.Warn("a variable "+v.Message, "variable", v.Path,
					runbook.Checking.Do("correct the name of the variable, or remove it"))
			}
			for _, v := range slices.Concat(aside.Bodies, aside.Parts) {
				log.Warn("a key "+v.Message, "key", v.Path, "line", v.Line,
					runbook.Checking.Do("correct the key, or nothing if it is meant so"))
			}
			opts.file, opts.reload, opts.recent = env.file, reload, &recent
			opts.load = func() (*config.Effective, error) {
				return engine.LoadEffective(env.file, config.Options{Getenv: env.getenv})
			}
			return serve(cmd.Context(), e, opts, log, env.getenv)
		},
	}
	cmd.Flags().DurationVar(&opts.delay, "drain-delay", 5*time.Second, "how long new calls are served after SIGTERM, while /readyz and gRPC health send them elsewhere")
	cmd.Flags().DurationVar(&opts.drain, "drain", 30*time.Second, "how long running calls may take to finish after that")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	return cmd
}

func checkCommand(env *environment) *cobra.Command {
	var live, timeouts, asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration file: silent when it is good, every violation otherwise",
		Long: "Check the configuration file: silent when it is good, every violation otherwise.\n\n" +
			"Except with --live, the variables that hold data source names may be missing. A variable\n" +
			"whose name begins with ORDERGATE_ and stands for no key of the file is named on\n" +
			"standard error. So is a key that reads the body of a call that looks like gRPC's, and a\n" +
			"{name} in the key of a lock that stands for nothing.\n\n" +
			"With --timeouts it also prints, for each rule with a create, for how long an answer may\n" +
			"be held, and the least timeouts of Envoy: message_timeout of ext_proc, and that of the\n" +
			"route. So it does for how long a request may wait: for a lock, for another call with\n" +
			"its key, or for the table of create.dedup.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && !timeouts {
				return usageError{errors.New("check: --json is for --timeouts")}
			}
			defer debug.SetGCPercent(debug.SetGCPercent(1000)) // a short command with little memory: collecting took a third of it
			opts := config.Options{Getenv: env.getenv, WithoutDSN: !live, Environ: env.environ()}
			c, aside, err := engine.LoadConfigWith(env.file, opts)
			if err != nil {
				return usageError{err}
			}
			for _, v := range slices.Concat(aside.Variables, aside.Bodies, aside.Parts, aside.Advice) {
				fmt.Fprintln(env.stderr, v)
			}
			if timeouts {
				if err := printTimeouts(env.stdout, c, asJSON); err != nil {
					return err
				}
			}
			if !live {
				return nil
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			return printLive(env, engine.CheckLive(ctx, c))
		},
	}
	cmd.Flags().BoolVar(&timeouts, "timeouts", false, "also print the least timeouts of Envoy for these rules")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print these as JSON")
	cmd.Flags().BoolVar(&live, "live", false, "also connect to Redis, tables and files, and check the settings and rights of Redis")
	return cmd
}

// printLive prints what check --live found. Its error is a usageError if the file has to change.
func printLive(env *environment, r engine.LiveReport) error {
	for _, line := range r.Samples {
		fmt.Fprintln(env.stdout, line)
	}
	if notes := config.Report(env.file, env.getenv, r.Notes); notes != nil {
		fmt.Fprintln(env.stderr, notes)
	}
	err := config.Report(env.file, env.getenv, slices.Concat(r.Problems, r.Misfits))
	if len(r.Misfits) > 0 {
		return usageError{err}
	}
	return err
}

// load reads the configuration. Every error is a usageError, also that of a file that
// cannot be read.
func (e *environment) load() (*config.Config, error) {
	c, err := engine.LoadConfig(e.file, e.getenv)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// loadPart is load for a command that uses only some paths of the file. It prints the
// number of violations at other paths on stderr.
func (e *environment) loadPart(uses ...string) (*config.Config, error) {
	c, aside, err := engine.LoadConfigWith(e.file, config.Options{Getenv: e.getenv, Uses: uses})
	if err != nil {
		return nil, usageError{err}
	}
	if n := len(aside.Unused); n > 0 {
		fmt.Fprintf(e.stderr, "%s: violations that do not concern this command: %d (ordergate check lists them)\n", e.file, n)
	}
	return c, nil
}

// adminKeys lists the keys that a command needs to call the running ordergate.
var adminKeys = []string{"listen.admin", "listen.token_file", "listen.token_env"}

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is not one of debug, info, warn, error", level)
	}
	opts.Level = l
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return nil, fmt.Errorf("--log-format: %q is not one of text, json", format)
}

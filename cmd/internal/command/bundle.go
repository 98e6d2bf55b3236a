package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/bundle"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/redisconn"
)

const (
	// reportTimeout bounds the questions for a report, in all.
	reportTimeout = 30 * time.Second
	// maxPart bounds one answer of the running ordergate, in bytes.
	maxPart = 64 << 20
)

func bundleCommand(env *environment) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write a report on a fault: one tar.gz, without secrets",
		Long: "Write a report on a fault: one tar.gz with the configuration, what check says\n" +
			"of it, and of the running ordergate its configuration in force, states, metrics, goroutines,\n" +
			"versions and last 1,000 lines of the log, and INFO of Redis.\n\n" +
			"It has no passwords, tokens, secrets or keys, and no comments of the file. The log, and the\n" +
			"errors of a database, may name orders. Standard error has what the report lacks, and so has\n" +
			"its missing.txt.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			name := "ordergate-" + now.UTC().Format("20060102-150405")
			if out == "" {
				out = name + ".tar.gz"
			}
			write, err := env.openReport(out)
			if err != nil {
				return fmt.Errorf("bundle: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), reportTimeout)
			defer cancel()
			files, secrets := env.report(ctx)
			scrub := bundle.NewScrubber(secrets)
			var archive bytes.Buffer
			err = files.Write(&archive, name+"/", scrub, now)
			if err := write(archive.Bytes(), err); err != nil {
				return fmt.Errorf("bundle: %w", err)
			}
			for _, line := range files.Missing() {
				fmt.Fprintf(env.stderr, "bundle: the report lacks %s\n", scrub.Scrub([]byte(line)))
			}
			if out != "-" {
				fmt.Fprintf(env.stdout, "wrote %s: %d files, without secrets; the log names orders\n", out, files.Len())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the file to write, which must not exist; - for standard output (default ordergate-TIME.tar.gz)")
	return cmd
}

// openReport creates the file of a report. The returned function writes the report, or removes the
// file if there is none, or no room for it.
func (e *environment) openReport(out string) (write func(report []byte, err error) error, err error) {
	if out == "-" {
		return func(report []byte, err error) error {
			if err == nil {
				_, err = e.stdout.Write(report)
			}
			return err
		}, nil
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s exists: name another file with --out", out)
	}
	if err != nil {
		return nil, err
	}
	return func(report []byte, err error) error {
		if err == nil {
			_, err = f.Write(report)
		}
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			_ = os.Remove(out) // it would look like a report
		}
		return err
	}, nil
}

// report collects a report, with the secrets that must not be in it.
func (e *environment) report(ctx context.Context) (files *bundle.Files, secrets []string) {
	files = &bundle.Files{}
	var b bytes.Buffer
	if err := admin.WriteJSON(&b, bundle.ThisProcess(versionText())); err == nil {
		files.Add("command.json", b.Bytes())
	}
	data, err := config.ReadFile(e.file)
	if err != nil {
		files.Miss("the configuration: reading "+e.file, err)
	} else {
		files.Add("configuration.yaml", config.Redact(data))
	}
	secrets = config.FileSecrets(data, e.environ())
	files.Add("variables.txt", []byte(variableNames(e.environ())))
	checked := ""
	c, aside, err := engine.LoadConfigWith(e.file, config.Options{Getenv: e.getenv, WithoutDSN: true, Environ: e.environ()})
	if err != nil {
		checked = err.Error() + "\n"
	} else {
		secrets = append(secrets, c.Secrets()...)
	}
	for _, v := range slices.Concat(aside.Variables, aside.Bodies, aside.Parts, aside.Advice) {
		checked += v.String() + "\n"
	}
	files.Add("check.txt", []byte(checked))
	if !e.addInstance(ctx, files) {
		addRedis(ctx, files, c)
	}
	return files, secrets
}

// variableNames returns the names of the variables that set keys, a line each.
func variableNames(environ []string) string {
	var b strings.Builder
	for _, v := range slices.Sorted(slices.Values(environ)) {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "ORDERGATE_") {
			fmt.Fprintln(&b, name)
		}
	}
	return b.String()
}

// addInstance adds what the running ordergate has, and reports whether it has given all of it.
func (e *environment) addInstance(ctx context.Context, files *bundle.Files) bool {
	const what = "the running ordergate"
	c, _, err := engine.LoadConfigWith(e.file, config.Options{Getenv: e.getenv, Uses: adminKeys})
	switch {
	case err != nil:
		files.Miss(what, errors.New("its address is not known: see check.txt"))
		return false
	case c.Listen.Admin == "":
		files.Miss(what, errors.New("the file has no listen.admin"))
		return false
	}
	for _, part := range []struct{ path, name string }{{"/readyz", "readyz.json"}, {"/metrics", "metrics.txt"}} {
		text, err := askForPart(ctx, c, part.path)
		if errors.Is(err, errNotRunning) {
			files.Miss(what, err)
			return false
		}
		if err != nil {
			files.Miss(part.path+" of "+what, err)
			continue
		}
		files.Add("instance/"+part.name, text)
	}
	text, err := askForPart(ctx, c, "/v1/bundle")
	if err == nil {
		err = files.Read(bytes.NewReader(text), "instance/")
	}
	if err != nil {
		files.Miss("the log, the goroutines and the states of "+what, err)
	}
	return err == nil
}

// askForPart returns an answer of the running ordergate, also that of one that is not ready.
func askForPart(ctx context.Context, c *config.Config, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	if c.Listen.Token != "" {
		request.Header.Set("Authorization", "Bearer "+string(c.Listen.Token))
	}
	response, err := adminRoundTrip(c.Listen.Admin, request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() // its error does not matter: the body is only read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxPart))
	if err == nil && response.StatusCode != http.StatusOK && path != "/readyz" {
		err = fmt.Errorf("it answered %s: %s", response.Status, strings.Join(strings.Fields(string(text)), " "))
	}
	return text, err
}

// addRedis adds INFO of the configured Redis, where no ordergate has asked for it.
func addRedis(ctx context.Context, files *bundle.Files, c *config.Config) {
	if c == nil || c.Redis == nil || c.Redis.Mode == config.RedisEmbedded {
		return
	}
	client, closeClient, err := redisconn.Connect(ctx, c.Redis, 0)
	if err != nil {
		files.Miss("INFO of Redis", err)
		return
	}
	defer closeClient()
	infos, err := redisconn.Info(ctx, client)
	for _, at := range slices.Sorted(maps.Keys(infos)) {
		files.Add("redis/"+strings.NewReplacer(":", "-", "/", "-", " ", "-").Replace(at)+".txt", []byte(infos[at]))
	}
	if err != nil {
		files.Miss("INFO of Redis", err)
	}
}

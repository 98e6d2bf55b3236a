package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// anyAdmin is merged over the configuration, so that the admin interface is
// there and on a free port whatever the configuration says of it.
const anyAdmin = `admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}`

// Envoy is a running Envoy proxy.
type Envoy struct {
	*Process
	admin atomic.Pointer[string]
}

// Envoy starts the Envoy of .cache/bin with a bootstrap configuration in YAML
// and waits until it is live. The admin interface goes to a free port; so does
// every listener whose port_value is 0. The arguments are added to the command
// line; without "--concurrency" among them there is one worker thread, and
// without "--restart-epoch" no hot restart. It returns a [*MissingError] if
// Envoy was not fetched. The context bounds the start.
func (b *Bed) Envoy(ctx context.Context, config string, args ...string) (*Envoy, error) {
	return b.envoy(ctx, config, nil, args)
}

func (b *Bed) envoy(ctx context.Context, config string, env, args []string) (*Envoy, error) {
	path, err := b.envoyPath()
	if err != nil {
		return nil, err
	}
	file, err := b.tempFile("envoy-*.yaml", config)
	if err != nil {
		return nil, fmt.Errorf("starting envoy: %w", err)
	}
	adminFile := file + ".admin"
	if !slices.Contains(args, "--concurrency") {
		args = append([]string{"--concurrency", "1"}, args...)
	}
	if !slices.Contains(args, "--file-flush-interval-msec") { // its access log is looked at
		args = append([]string{"--file-flush-interval-msec", "100"}, args...)
	}
	if !slices.Contains(args, "--restart-epoch") {
		args = append([]string{"--disable-hot-restart"}, args...)
	}
	e := &Envoy{}
	p := &Process{path: path, env: env, args: append([]string{
		"-c", file, "--config-yaml", anyAdmin, "--admin-address-path", adminFile,
	}, args...)}
	p.ready = func(ctx context.Context, r *run) error {
		err := r.until(ctx, func() error { return e.live(ctx, adminFile) })
		// The next start must not read the address of this one.
		return errors.Join(err, removeIfThere(adminFile))
	}
	if err := b.launch(ctx, "envoy", p); err != nil {
		return nil, err
	}
	e.Process = p
	return e, nil
}

// Validate checks a bootstrap configuration with Envoy's own validation mode.
// It returns Envoy's complaint, or a [*MissingError] if Envoy was not fetched.
func (b *Bed) Validate(ctx context.Context, config string) error {
	path, err := b.envoyPath()
	if err != nil {
		return err
	}
	file, err := b.tempFile("validate-*.yaml", config)
	if err != nil {
		return fmt.Errorf("validating envoy's configuration: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, "--mode", "validate", "-c", file, "-l", "error")
	cmd.SysProcAttr = sysProcAttr()
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", " | ")
		return fmt.Errorf("validating envoy's configuration %s: %w: %s", file, err, text)
	}
	return nil
}

// AdminAddr returns the "host:port" of the admin interface. It is another one
// after a restart.
func (e *Envoy) AdminAddr() string { return *e.admin.Load() }

// ListenerAddr returns the "host:port" that the listener of that name is bound
// to.
func (e *Envoy) ListenerAddr(ctx context.Context, name string) (string, error) {
	body, err := e.ask(ctx, "/listeners?format=json")
	if err != nil {
		return "", err
	}
	var answer struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return "", fmt.Errorf("reading the listeners of %s: %w", e.name, err)
	}
	var names []string
	for _, l := range answer.Statuses {
		if l.Name == name {
			return net.JoinHostPort(l.Local.Socket.Address, strconv.Itoa(l.Local.Socket.Port)), nil
		}
		names = append(names, l.Name)
	}
	return "", fmt.Errorf("%s has no listener %q, only %q: name it in the configuration", e.name, name, names)
}

// Stats returns the counters and gauges whose name starts with prefix, by full
// name. Histograms are left out.
func (e *Envoy) Stats(ctx context.Context, prefix string) (map[string]int64, error) {
	filter := "^" + regexp.QuoteMeta(prefix)
	body, err := e.ask(ctx, "/stats?filter="+url.QueryEscape(filter))
	if err != nil {
		return nil, err
	}
	stats := make(map[string]int64)
	for line := range strings.Lines(body) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			stats[name] = n
		}
	}
	return stats, nil
}

// ask gets a page of the admin interface.
func (e *Envoy) ask(ctx context.Context, page string) (string, error) {
	status, body, err := get(ctx, "http://"+e.AdminAddr()+page)
	if err != nil {
		return "", fmt.Errorf("asking %s for %s: %w", e.name, page, err)
	}
	if status != 200 {
		return "", fmt.Errorf("asking %s for %s: status %d: %s", e.name, page, status, strings.TrimSpace(body))
	}
	return body, nil
}

// live tells whether Envoy serves: its listeners are bound then.
func (e *Envoy) live(ctx context.Context, adminFile string) error {
	text, err := os.ReadFile(adminFile)
	if err != nil {
		return err
	}
	addr := string(text)
	status, body, err := get(ctx, "http://"+addr+"/ready")
	if err != nil {
		return err
	}
	if status != 200 {
		return fmt.Errorf("it is not live: %s", strings.TrimSpace(body))
	}
	e.admin.Store(&addr)
	return nil
}

// envoyPath returns the Envoy of the tests, or the one of the version in ENVOY_VERSION (make matrix).
func (b *Bed) envoyPath() (string, error) {
	name, fetch := "envoy", "envoy"
	if version := os.Getenv("ENVOY_VERSION"); version != "" {
		name, fetch = "envoy-"+version, "matrix"
	}
	path, err := exec.LookPath(b.cache("bin", name))
	if err != nil {
		return "", &MissingError{Program: ".cache/bin/" + name, Fetch: fetch}
	}
	return path, nil
}

// EnvoyIs reports whether the Envoy of the tests is of one of the minor versions, such as "1.37".
func EnvoyIs(minors ...string) bool {
	version := os.Getenv("ENVOY_VERSION")
	return slices.ContainsFunc(minors, func(minor string) bool { return strings.HasPrefix(version, minor+".") })
}

// tempFile writes text to a new file of the bed and returns its path. Envoy
// tells the format by the end of the name.
func (b *Bed) tempFile(pattern, text string) (string, error) {
	f, err := os.CreateTemp(b.dir, pattern)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	return f.Name(), errors.Join(err, f.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

package tests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// bundleConfig has a secret in each place that can hold one.
const bundleConfig = `
# The password before was secret-comment.
listen: {authz: 127.0.0.1:0, proc: 127.0.0.1:0, admin: %[1]s, debug: true, token_env: GATE_TOKEN, tls: {cert: %[2]s, key: %[3]s, ca: %[2]s}}
redis: {addresses: [%[4]s], username: gate, password_file: %[5]s}
filters:
  orders: {capacity: 1000, sources: [orders-db], secret_env: FILTER_SECRET}
sources:
  orders-db: {kind: mysql, dsn_env: ORDERS_DSN, table: orders, id_column: id, follow: poll}
locks:
  settlement: {secret_env: LOCK_SECRET}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: orders}
  - name: settle
    match: {methods: [POST], path: /confirm}
    settle: {lock: settlement, by: [{cookie: SID}]}
`

// secretsInBundle are the secrets of bundleConfig, and of the file that is wrong.
var secretsInBundle = []string{
	"secret-comment", "secret-redis", "secret-dsn/%", "secret-dsn%2F%25", "secret-token-of-the-admin", "secret-of-the-filter", "secret-of-the-lock", "PRIVATE KEY",
	"secret-in-yaml", "secret-in-url", "secret-in-place-of-a-name", "secret-in-a-variable",
}

// TestBundle plants a fault (the database does not answer) and secrets. A report has the fault, and no
// secret, in each kind of trouble.
func TestBundle(t *testing.T) {
	needsSidecar(t, "TestBundleInside has the other one")
	t.Parallel()
	bed := bedtest.New(t)
	dir := t.TempDir()
	server := bed.Redis("--user", "gate", "on", ">secret-redis", "~*", "&*", "+@all")
	must(t, os.WriteFile(filepath.Join(dir, "redis"), []byte("secret-redis\n"), 0o600))
	certs := bed.Certificates()
	config := func(admin string) string {
		return fmt.Sprintf(bundleConfig, admin, certs.ServerCert, certs.ServerKey, server.Addr(), filepath.Join(dir, "redis"))
	}
	env := []string{
		"GATE_TOKEN=secret-token-of-the-admin", "FILTER_SECRET=secret-of-the-filter", "LOCK_SECRET=secret-of-the-lock",
		"ORDERS_DSN=shop:secret-dsn/%@tcp(127.0.0.1:1)/shop", "ORDERGATE_FILTERS_ORDERS_STALE_AFTER=6s",
	}
	gate, err := bed.GateUnready(t.Context(), bed.Build("./cmd/sidecar", false), config("127.0.0.1:0"), env...)
	must(t, err)
	s := &stack{Bed: bed, t: t, gate: gate}
	file := filepath.Join(dir, "ordergate.yaml")
	write := func(yaml string) { must(t, os.WriteFile(file, []byte(yaml), 0o600)) }
	good := config(bed.GateAddr(gate, "admin"))
	write(good)
	s.wantLogged("level=ERROR", "connection refused")

	const running = "instance/"
	whole := []string{
		"check.txt", "command.json", "configuration.yaml", running + "filters/orders.json", running + "goroutines.txt", running + "in-force.yaml",
		running + "log.txt", running + "metrics.txt", running + "process.json", running + "readyz.json", running + "redis/" + strings.ReplaceAll(server.Addr(), ":", "-") + ".txt",
		running + "stacks.txt", "variables.txt",
	}
	files, _ := s.bundle(file, env, "")
	if names := slices.Sorted(maps.Keys(files)); !slices.Equal(names, whole) {
		t.Errorf("the report has %q", names)
	}
	for name, text := range map[string]string{
		running + "readyz.json": "connection refused", running + "log.txt": "connection refused", running + "filters/orders.json": `"state": "unknown"`,
		running + "metrics.txt": `ordergate_filter_state{filter="orders",state="unknown"} 1`, running + "stacks.txt": "goroutine 1 [", whole[10]: "redis_version:",
		"configuration.yaml": "dsn_env: ORDERS_DSN", running + "in-force.yaml": "stale_after: 6s", running + "process.json": `"github.com/redis/go-redis/v9": "v`,
	} {
		if !strings.Contains(files[name], text) {
			t.Errorf("%s has no %q: %.2000s", name, text, files[name])
		}
	}
	s.profiles("secret-token-of-the-admin")
	s.configuration("", 200, "capacity: 1_000 # line 6\n", "stale_after: 6s # ORDERGATE_FILTERS_ORDERS_STALE_AFTER\n", "lease: 30s # default\n", "password_file: "+dir)
	s.configuration("/diff", 200, "")

	// The admin address refuses; the rest is there.
	_, lacks := s.bundle(file, append([]string{"GATE_TOKEN=another-one-of-16-bytes"}, env[1:]...), running+"metrics.txt")
	wantLacks(t, lacks, "the log, the goroutines and the states of the running ordergate: it answered 401")

	// The file is wrong, and has secrets in wrong places.
	write(bedtest.Replace(bedtest.Replace(good, "username: gate", `username: gate, password: secret-in-yaml, master: "redis://gate:secret-in-url@host"`),
		"dsn_env: ORDERS_DSN", "dsn_env: secret-in-place-of-a-name"))
	must(t, gate.WriteConfig(bedtest.Replace(good, "username: gate", "username: gate, password: secret-in-yaml")))
	s.wantLogged("level=ERROR", "the old one stays")
	s.configuration("", 200, "username: gate # line 4\n")
	s.configuration("/diff", 422, "redis.password: ")
	files, lacks = s.bundle(file, append(env, "ORDERGATE_REDIS_PASSWORD=secret-in-a-variable"), "instance/log.txt")
	wantLacks(t, lacks, "")
	if text := files["check.txt"]; !strings.Contains(text, "redis.password") || !strings.Contains(files["variables.txt"], "ORDERGATE_REDIS_PASSWORD\n") {
		t.Errorf("check.txt: %s, variables.txt: %s", text, files["variables.txt"])
	}
	write("listen: {admin: \"127.0.0.1:1\"\nredis: {password: secret-in-yaml") // no YAML
	files, lacks = s.bundle(file, env, "configuration.yaml")
	wantLacks(t, lacks, "the running ordergate: its address is not known: see check.txt")
	if !strings.Contains(files["check.txt"], "the file is not YAML") {
		t.Errorf("check.txt: %s", files["check.txt"])
	}

	write(good)
	server.Kill()
	_, lacks = s.bundle(file, env, running+"log.txt")
	wantLacks(t, lacks, "INFO of Redis: ")
	gate.Kill()
	_, lacks = s.bundle(file, env, "configuration.yaml")
	wantLacks(t, lacks, "the running ordergate: asking the ordergate at ", "INFO of Redis: ")

	for _, tt := range []struct{ shell, want string }{
		{`touch x; "$@" --out x`, "bundle: x exists: name another file with --out\n"},
		{`"$@" --out /nowhere/x`, "bundle: open /nowhere/x: no such file or directory\n"},
		{`"$@" --out - >/dev/full`, "bundle: write /dev/stdout: no space left on device\n"},
		{`"$@" --config missing.yaml --out y`, "bundle: the report lacks the configuration: reading missing.yaml: no such file or directory\n"},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", tt.shell, "sh", bed.Build("./cmd/sidecar", false), "bundle", "--config", file)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		if out, _ := cmd.CombinedOutput(); !strings.HasPrefix(string(out), tt.want) {
			t.Errorf("%s: %q, want %q", tt.shell, out, tt.want)
		}
	}
}

// TestBundleInside has a report of an ordergate inside Envoy.
func TestBundleInside(t *testing.T) {
	needsModule(t)
	t.Parallel()
	s := newStack(t, settings{backend: newBackend(t).addr(), orders: 10})
	files, lacks := s.bundle(commandFile(t, s), nil, "instance/log.txt")
	wantLacks(t, lacks, "")
	if log := files["instance/log.txt"]; !strings.Contains(log, ` level=INFO msg="serving inside Envoy"`) {
		t.Errorf("log.txt: %s", log)
	}
}

// bundle has ordergate write a report, checks that it has a text and no secret, and returns its texts
// and what it lacks.
func (s *stack) bundle(file string, env []string, has string) (files map[string]string, lacks string) {
	s.t.Helper()
	out := filepath.Join(s.t.TempDir(), "report.tar.gz")
	cmd := exec.CommandContext(s.t.Context(), s.Build("./cmd/sidecar", false), "bundle", "--config", file, "--out", out)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(s.t, cmd.Run())
	data, err := os.ReadFile(out)
	must(s.t, err)
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	must(s.t, err)
	files = make(map[string]string)
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(s.t, err)
		text, err := io.ReadAll(archive)
		must(s.t, err)
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
	for name, text := range files {
		for _, secret := range secretsInBundle {
			if strings.Contains(text, secret) || strings.Contains(stderr.String(), secret) {
				s.t.Errorf("%s or stderr has %q: %s", name, secret, text)
			}
		}
	}
	if _, ok := files[has]; has != "" && !ok {
		s.t.Errorf("the report has no %s: %q", has, slices.Sorted(maps.Keys(files)))
	}
	if missing := strings.ReplaceAll(stderr.String(), "bundle: the report lacks ", ""); missing != files["missing.txt"] {
		s.t.Errorf("stderr has %q, missing.txt %q", missing, files["missing.txt"])
	}
	return files, files["missing.txt"]
}

// wantLacks checks what a report lacks: a line that begins so for each.
func wantLacks(t *testing.T, lacks string, want ...string) {
	t.Helper()
	lines := strings.SplitAfter(strings.TrimSuffix(lacks, "\n"), "\n")
	for i, line := range lines {
		if len(lines) != len(want) || !strings.HasPrefix(line, want[i]) || want[i] == "" && line != "" {
			t.Errorf("the report lacks %q, want %q", lacks, want)
			return
		}
	}
}

// configuration asks for the configuration in force, as text and as JSON, and checks that it has no secret.
func (s *stack) configuration(path string, want int, has ...string) {
	s.t.Helper()
	for _, accept := range []string{"*/*", "application/json"} {
		status, text := s.admin("GET", "/v1/config"+path, "", "Authorization", "Bearer secret-token-of-the-admin", "Accept", accept)
		isJSON := json.Valid([]byte(text))
		if wantJSON := accept != "*/*" || want != 200; status != want || isJSON != wantJSON {
			s.t.Errorf("/v1/config%s, %s: %d %s", path, accept, status, text)
		}
		for _, secret := range secretsInBundle {
			if strings.Contains(text, secret) {
				s.t.Errorf("/v1/config%s has %q: %s", path, secret, text)
			}
		}
		for _, part := range has {
			if !isJSON && !strings.Contains(text, part) {
				s.t.Errorf("/v1/config%s has no %q: %s", path, part, text)
			}
		}
	}
}

// profiles asks for a profile of Go's runtime, with the token and without.
func (s *stack) profiles(token string) {
	s.t.Helper()
	if status, text := s.admin("GET", "/debug/pprof/goroutine?debug=1", "", "Authorization", "Bearer "+token); status != 200 || !strings.HasPrefix(text, "goroutine profile") {
		s.t.Errorf("a profile: %d %.200s", status, text)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/profile?seconds=1", "/v1/bundle", "/v1/config", "/v1/config/diff"} {
		if status, _ := s.admin("GET", path, ""); status != 401 {
			s.t.Errorf("%s without the token: %d", path, status)
		}
	}
}

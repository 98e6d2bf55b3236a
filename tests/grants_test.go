package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestGrantedRights runs everything with the rights that "ordergate grants" prints, and no others.
func TestGrantedRights(t *testing.T) {
	needsSidecar(t, "its rights are the same inside Envoy")
	t.Parallel()
	for _, n := range []int{0, 2} {
		tc := follows[n]
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const password = "the-password"
			b := newBackend(t)
			bed := bedtest.New(t)
			table := tc.table(t, bed, 1000, tc.args...)
			dir := t.TempDir()
			file, dsn := filepath.Join(dir, "ordergate.yaml"), filepath.Join(dir, "dsn")
			must(t, os.WriteFile(dsn, []byte(withLogin(t, table, password)), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "redis"), []byte(password), 0o600))
			s := &stack{Bed: bed, t: t, server: bed.Redis()}
			s.redis = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
			t.Cleanup(func() { _ = s.redis.Close() })
			s.start(settings{backend: b.addr(), gate: func(yaml string) string {
				yaml = edit(t,
					"\nredis:\n", "\nredis:\n  username: gate\n  password_file: "+filepath.Join(dir, "redis")+"\n",
					"settle: {lock: settlement}", "settle: {lock: settlement, once: {scope: []}, require: [{missing: \"stop:{id}\"}]}",
					"sources: [seed]", "sources: [orders-db]",
					"\nsources:\n", "\nsources:\n  orders-db: {kind: "+table.kind+", dsn_file: "+dsn+", table: orders, id_column: id"+tc.source+"}\n",
				)(yaml)
				must(t, os.WriteFile(file, []byte(yaml), 0o600))
				var granted struct {
					SQL []struct {
						Statements []string `json:"statements"`
					} `json:"sql"`
					Redis []string `json:"redis"`
				}
				out, err := exec.CommandContext(t.Context(), bed.Build("./cmd/sidecar", false), "grants", "--json", "--config", file).Output()
				must(t, err)
				must(t, json.Unmarshal(out, &granted))
				for _, statement := range granted.SQL[0].Statements {
					if !strings.HasPrefix(statement, "--") {
						table.exec(strings.Replace(statement, "'PASSWORD'", "'"+password+"'", 1))
					}
				}
				words := strings.Fields(strings.Replace(granted.Redis[0], ">PASSWORD", ">"+password, 1))
				args := []any{"ACL", "SETUSER"}
				for _, word := range words[1:] {
					args = append(args, word)
				}
				must(t, s.redis.Do(t.Context(), args...).Err())
				return yaml
			}})
			bedtest.Eventually(t, "the filter is certain", s.certainlyAbsent)
			s.operator(file, "check", "--live")
			seen, _ := s.doctor("--through", "http://127.0.0.1:1") // of the servers alone
			for _, want := range []string{"redis: lock settlement: a release wakes waiters", "redis: its user may not read other keys", "clocks: that of the database of sources.orders-db agrees"} {
				if !strings.Contains(seen, "ok    "+want) {
					t.Errorf("no %q in:\n%s", want, seen)
				}
			}
			s.must("POST", "/orders/7/settle", "").want(t, 200, "")
			s.must("POST", "/orders/7/settle", "").want(t, 200, "replayed")
			s.must("GET", "/orders/5000", "").want(t, 404, "absent")
			table.insert(5000)
			bedtest.Eventually(t, "a row that others write is known", func() bool { return s.must("GET", "/orders/5000", "").verdict != "absent" })
			s.operator(commandFile(t, s), "load", "--filter", "orders")
			log, err := os.ReadFile(s.gate.Output())
			must(t, err)
			for line := range strings.Lines(string(log)) {
				if strings.Contains(line, "NOPERM") || strings.Contains(line, "denied") || strings.Contains(line, "permission") {
					t.Error(line)
				}
			}
		})
	}
}

package command

import (
	"database/sql"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// repositoryFiles returns the configurations of the repository that load without their data source
// names.
func repositoryFiles(t *testing.T) (all map[string]*config.Config) {
	t.Helper()
	all = make(map[string]*config.Config)
	for _, root := range []string{"config/testdata", "examples", "packaging"} {
		err := filepath.WalkDir(filepath.Join("../../..", root), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), "\nrules:") {
				return err
			}
			getenv := func(name string) string {
				if strings.HasPrefix(name, "ORDERGATE_") || strings.HasSuffix(name, "DSN") { // a key of the file; a database
					return ""
				}
				return "0123456789abcdef0123456789abcdef"
			}
			if c, _, err := engine.LoadConfigWith(path, config.Options{Getenv: getenv, WithoutDSN: true, Environ: []string{}}); err == nil {
				all[path] = c
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestExamples holds the example of each rule, by each of its methods, against explain.
func TestExamples(t *testing.T) {
	files, rules := repositoryFiles(t), 0
	for path, c := range files {
		policies, err := explain.Policies(c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range policies {
			r := &policies[i].Rule
			for _, method := range r.Methods {
				if r.Pass {
					continue
				}
				req, err := r.Example(method)
				if err != nil {
					t.Errorf("%s: rule %s: %v", path, r.Name, err)
					continue
				}
				headers := req.Header.(order.HeaderList)
				if req.Host == "" {
					req.Host = "shop"
				}
				for _, p := range []string{"idempotency-key"} {
					headers = append(headers, [2]string{p, `"doctor"`})
				}
				req.Header = headers
				q := &explain.Explainer{Request: req, Headers: headers}
				e, err := q.Explain(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				rules++
				if e.Rule == nil || *e.Rule != r.Name || e.Reason != nil && *e.Reason != "missing_key" && *e.Reason != "missing_header" {
					t.Errorf("%s: rule %s: %s %s %q with %v: falls under %v, %s", path, r.Name, method, req.Target, req.Body, headers, e.Rule, e.Because)
				}
			}
		}
	}
	if len(files) < 5 || rules < 30 {
		t.Errorf("only %d files with %d rules were found", len(files), rules)
	}
}

// TestHarmlessReads are no request of a rule that creates or settles.
func TestHarmlessReads(t *testing.T) {
	for path, c := range repositoryFiles(t) {
		policies, err := explain.Policies(c)
		if err != nil {
			t.Fatal(err)
		}
		d := &doctor{policies: policies}
		reads := d.harmlessReads()
		for _, req := range reads {
			q := &explain.Explainer{Request: req}
			e, err := q.Explain(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if len(req.Body) > 0 || req.Method != http.MethodGet || slices.Contains(e.Actions, "create") || slices.Contains(e.Actions, "settle") || slices.Contains(e.Actions, "once") {
				t.Errorf("%s: %s %s is one of %v", path, req.Method, req.Target, e.Actions)
			}
		}
	}
}

// TestDoctorServers has servers of which each has something wrong, without an ordergate or Envoy.
func TestDoctorServers(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	user := func(more ...string) []string {
		return append([]string{"--appendonly", "yes", "--user", "gate", "on", ">secret", "~order:*", "~{order:*", "~redisson*", "~ordergate:*", "+@all"}, more...)
	}
	narrow, deaf, open := bed.Redis(user("&*")...), bed.Redis(user("resetchannels")...), bed.Redis()
	db := bed.MariaDB()
	setup, err := sql.Open("mysql", db.DSN())
	bedtest.Check(t, err)
	for _, statement := range []string{"CREATE DATABASE shop", "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY)"} {
		_, err := setup.ExecContext(t.Context(), statement)
		bedtest.Check(t, err)
	}
	bedtest.Check(t, setup.Close())
	dsn := db.Config()
	dsn.DBName = "shop"
	right := dsn.FormatDSN()
	dsn.Params = map[string]string{"timestamp": strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)}
	for name, tt := range map[string]struct {
		redis, dsn string
		want       []string
	}{
		"rights": {"addresses: [" + narrow.Addr() + "], username: gate, password_env: PW", right, []string{
			"ok    redis: lock settlement: a release wakes waiters", "ok    redis: its user may not read other keys",
			"ok    clocks: that of Redis agrees with this one", "ok    clocks: that of the database of sources.db agrees with this one"}},
		"no channels": {"addresses: [" + deaf.Addr() + "], username: gate, password_env: PW", right, []string{
			"FAIL  redis: lock settlement: releases wake no waiter, so each waits for its next try: subscribing to redisson_lock__channel:{order:lock:ordergate/probe}: NOPERM"}},
		"all rights, and another time": {"addresses: [" + open.Addr() + "]", dsn.FormatDSN(), []string{
			"-     redis: its user may do more than the file needs", "FAIL  redis: it does not write to disk as it goes",
			"FAIL  clocks: that of the database of sources.db is 1h0m"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := writeConfig(t, "listen: {admin: 127.0.0.1:1}\nredis: {"+tt.redis+"}\nsources: {db: {kind: mysql, dsn_env: DSN, table: orders, id_column: id, ascending: true}}\n"+
				"filters: {orders: {sources: [db]}}\nlocks: {settlement: {key: \"order:lock:{id}\"}}"+liveRules)
			env := func(key string) string { return map[string]string{"DSN": tt.dsn, "PW": "secret"}[key] }
			var out, errs strings.Builder
			if code := run(t.Context(), []string{"doctor", "--config", file, "--through", "http://127.0.0.1:1"}, &out, &errs, env); code != exitFailed {
				t.Errorf("exit code %d, %s", code, errs.String())
			}
			for _, want := range append(tt.want, "FAIL  running ordergate: ") {
				if !strings.Contains("\n"+out.String(), "\n"+want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
		})
	}
}

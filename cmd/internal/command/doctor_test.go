package command

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/order"
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
		policies, err := policiesOffline(c)
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
				q := &explainer{Request: req, headers: headers}
				e, err := q.explain(t.Context(), c)
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
		policies, err := policiesOffline(c)
		if err != nil {
			t.Fatal(err)
		}
		d := &doctor{policies: policies}
		reads := d.harmlessReads()
		for _, req := range reads {
			q := &explainer{Request: req}
			e, err := q.explain(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if len(req.Body) > 0 || req.Method != http.MethodGet || slices.Contains(e.Actions, "create") || slices.Contains(e.Actions, "settle") || slices.Contains(e.Actions, "once") {
				t.Errorf("%s: %s %s is one of %v", path, req.Method, req.Target, e.Actions)
			}
		}
	}
}

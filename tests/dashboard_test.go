package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// readDashboard returns the queries of Grafana's dashboard, named by their panels.
func readDashboard(t *testing.T) (queries []alertRule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(alertsDir, "dashboard.json"))
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("a panel has no title, description or query: %+v", p)
		}
		for _, target := range p.Targets {
			queries = append(queries, alertRule{Alert: "panel " + p.Title, Expr: target.Expr})
		}
	}
	if len(queries) == 0 {
		t.Fatal("the dashboard has no panel")
	}
	return queries
}

// TestDashboard has Prometheus's own tool read the queries. TestAlertMetrics compares them with
// what an ordergate exposes.
func TestDashboard(t *testing.T) {
	bedtest.NeedProcesses(t)
	t.Parallel()
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var records []record
	for i, q := range readDashboard(t) {
		records = append(records, record{fmt.Sprintf("ordergate:panel%d", i), strings.ReplaceAll(q.Expr, "$__rate_interval", "5m")})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": records}}})
	must(t, err)
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	must(t, os.WriteFile(path, text, 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool(t), "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

package tests

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
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
			Type, Title, Description string
			Targets                  []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
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

// askPrometheus has a real Prometheus scrape ordergates, and asks it every query. None may find nothing.
func askPrometheus(t *testing.T, admins []string, queries []alertRule) {
	t.Helper()
	bedtest.NeedProcesses(t)
	dir := t.TempDir()
	config, err := yaml.Marshal(map[string]any{"scrape_configs": []any{map[string]any{
		"job_name": "ordergate", "scrape_interval": "500ms", "static_configs": []any{map[string]any{"targets": admins}},
	}}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), config, 0o600))
	port, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := port.Addr().String()
	must(t, port.Close())
	cmd := exec.Command(prometheusProgram(t, "prometheus"), "--config.file="+dir+"/prometheus.yaml", "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+addr, "--log.level=error",
		"--enable-feature=exemplar-storage")
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has nothing to store
		_ = cmd.Wait()
		_ = log.Close()
	})
	ask := func(api, query string, into any) {
		resp, err := client.Get("http://" + addr + "/api/v1/" + api + "query=" + url.QueryEscape(query))
		if err != nil {
			return // it starts
		}
		defer resp.Body.Close()
		var answer struct {
			Error string
			Data  json.RawMessage
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err == nil && resp.StatusCode != http.StatusServiceUnavailable && answer.Error != "" {
			t.Errorf("%s: %s", query, answer.Error)
		}
		_ = json.Unmarshal(answer.Data, into) // without data, it is empty
	}
	find := func(query string) []any {
		var found struct{ Result []any }
		ask("query?", query, &found)
		return found.Result
	}
	bedtest.Eventually(t, "Prometheus has scraped all of them, twice", func() bool {
		return len(find(fmt.Sprintf("count(count_over_time(up[1m]) >= 3) == %d", len(admins)))) == 1
	})
	for _, q := range queries {
		if len(find(strings.ReplaceAll(q.Expr, "$__rate_interval", "1m"))) == 0 {
			t.Errorf("%s finds nothing in Prometheus: %s", q.Alert, q.Expr)
		}
	}
	for _, histogram := range []string{"ordergate_decision_seconds", "ordergate_lock_wait_seconds"} {
		var found []struct {
			Exemplars []struct{ Labels map[string]string }
		}
		ask("query_exemplars?start=1&end=4e9&", histogram+"_bucket", &found)
		if len(found) == 0 || len(found[0].Exemplars) == 0 || len(found[0].Exemplars[0].Labels["trace_id"]) != 32 {
			t.Errorf("Prometheus has no trace of %s: %+v", histogram, found)
		}
	}
}

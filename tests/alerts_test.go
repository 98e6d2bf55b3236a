package tests

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const alertsDir = "../examples/prometheus"

// alertRule is one alert of ordergate.rules.yaml.
type alertRule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

// ruleTest is one test of rules_test.yaml.
type ruleTest struct {
	InputSeries   []struct{ Series string } `yaml:"input_series"`
	AlertRuleTest []struct {
		Alertname string
		ExpAlerts []yaml.Node `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

func readAlerts(t *testing.T) (rules []alertRule, tests []ruleTest) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	readYAMLFile(t, filepath.Join(alertsDir, "ordergate.rules.yaml"), &file)
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	var testFile struct{ Tests []ruleTest }
	readYAMLFile(t, filepath.Join(alertsDir, "rules_test.yaml"), &testFile)
	if len(rules) == 0 || len(testFile.Tests) == 0 {
		t.Fatalf("read %d rules and %d tests", len(rules), len(testFile.Tests))
	}
	return rules, testFile.Tests
}

func readYAMLFile(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, yaml.Unmarshal(text, into))
}

// promtool returns the path of Prometheus's tool.
func promtool(t *testing.T) string { return prometheusProgram(t, "promtool") }

// prometheusProgram returns the path of one of Prometheus's programs.
func prometheusProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = filepath.Abs("../.cache/bin/" + name)
		must(t, err)
		if _, err := os.Stat(path); err != nil {
			bedtest.Check(t, &testbed.MissingError{Program: name, Fetch: name})
		}
	}
	return path
}

// TestAlertRules has Prometheus's own tool check the rules and run their tests.
func TestAlertRules(t *testing.T) {
	bedtest.NeedProcesses(t)
	t.Parallel()
	program := promtool(t)
	for _, args := range []string{
		"check rules --lint=all --lint-fatal ordergate.rules.yaml",
		"check config prometheus.yaml",
		"test rules rules_test.yaml",
	} {
		cmd := exec.CommandContext(t.Context(), program, strings.Fields(args)...)
		cmd.Dir = alertsDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}

// TestAlertsAreWhole looks for what belongs to an alert: a test in which it fires
// and one in which it does not, and a paragraph of docs/alerts.md.
func TestAlertsAreWhole(t *testing.T) {
	t.Parallel()
	rules, tests := readAlerts(t)
	page, err := os.ReadFile("../docs/alerts.md")
	must(t, err)
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, test := range tests {
		for _, at := range test.AlertRuleTest {
			if len(at.ExpAlerts) > 0 {
				fires[at.Alertname] = true
			} else {
				silent[at.Alertname] = true
			}
		}
	}
	for _, r := range rules {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: fires in a test: %v; does not fire in a test: %v", r.Alert, fires[r.Alert], silent[r.Alert])
		}
		if !strings.Contains(string(page), "\n## "+r.Alert+"\n\n*"+r.Labels["severity"]+": ") {
			t.Errorf("docs/alerts.md has no %s with severity %q", r.Alert, r.Labels["severity"])
		}
		if want := "/docs/alerts.md#" + strings.ToLower(r.Alert); !strings.HasSuffix(r.Annotations["runbook_url"], want) {
			t.Errorf("%s: runbook_url is %q, want one that ends with %q", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
	if n := strings.Count(string(page), "\n## "); n != len(rules) {
		t.Errorf("docs/alerts.md describes %d alerts, there are %d", n, len(rules))
	}
}

// TestAlertMetrics compares the rules and the dashboard with what a running ordergate exposes: every
// selector has to find something, and the series that the rules are tested with
// have to have the labels of real ones.
func TestAlertMetrics(t *testing.T) {
	t.Parallel()
	rules, tests := readAlerts(t)
	exposed, admins := exposedSeries(t)
	for _, r := range slices.Concat(rules, readDashboard(t)) {
		if r.Alert == "OrdergateUnlocked" && *attachment == asModule {
			continue // the module sees every body
		}
		selectors := parseSeries(r.Expr)
		if len(selectors) == 0 {
			t.Errorf("%s looks at no metric", r.Alert)
		}
		for _, s := range selectors {
			found := s.name == "up" // Prometheus's own
			for _, e := range exposed {
				found = found || s.name == e.name && s.matches(t, e)
			}
			if !found {
				t.Errorf("%s: nothing that ordergate exposes matches %s", r.Alert, s.text)
			}
		}
	}
	askPrometheus(t, admins, readDashboard(t))
	for _, test := range tests {
		for _, input := range test.InputSeries {
			for _, s := range parseSeries(input.Series) {
				found := s.name == "up"
				for _, e := range exposed {
					found = found || s.name == e.name && slices.Equal(s.labelNames(), e.labelNames())
				}
				if !found {
					t.Errorf("a test of the rules has %s: nothing that ordergate exposes has these labels", s.text)
				}
			}
		}
	}
}

// exposedSeries returns what /metrics shows after all has happened that the rules
// look at: grants, a busy lock, too many settlements at once, an order that could not be learned, stored answers
// and conditions, a settlement without a lock, Redis lost.
//
// It returns the admin addresses, too.
func exposedSeries(t *testing.T) (exposed []series, admins []string) {
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: tracing, env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, gate: both(both(flying(t, "max_in_flight: 2, max_in_flight_per_client: 2", "60s"), withOnceAndConditions), logging(t.TempDir()+"/decisions.log"))})
	done := s.inBackground(t.Context(), "/orders/5/settle?do=hang")
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/5/settle") == 1 })
	s.must("POST", "/orders/5/settle", "").want(t, 409, "busy")
	other := s.hang(b, "POST", "/orders/7/settle", "")
	s.must("POST", "/orders/6/settle", "").want(t, 503, "overloaded")
	b.goOn()
	<-done
	other.wantAnswer(t)
	s.must("POST", `/orders?do=create&id="A-1"`, "").want(t, 201, "")
	s.must("POST", "/orders/a/settle", "").want(t, 400, "invalid")
	pay := func(key, body string) answer {
		return s.must("POST", "/payments?do=answer&status=200&body="+body, "", "Idempotency-Key", key)
	}
	pay("1", "ok").want(t, 200, "")
	pay("1", "ok").want(t, 200, "replayed")
	pay("1", "other").want(t, 422, "mismatch")
	pay("2", "large").want(t, 200, "")
	if *attachment == asSidecar {
		blind := s.second(settings{backend: b.addr(), orders: 10, gate: byBody, envoy: edit(t, noOverride...)})
		blind.must("POST", "/settle", `{"order":1}`, "Content-Type", jsonBody).want(t, 503, "unlocked")
		admins = append(admins, s.GateAddr(blind.gate, "admin"))
	}
	s.server.Kill()
	s.must("POST", "/orders/6/settle", "").want(t, 503, "unavailable")

	table := mariaTable(t, s.Bed, 10)
	tables := table.gate(s.Bed, s.Redis().Addr(), tableSettings{
		member: "one", filter: fmt.Sprintf(", reconcile: {every: 1m}, snapshot: {path: %q}", t.TempDir()+"/orders.snap"),
		source: ", follow: poll",
	})
	confirming := bedtest.Replace(table.config(s.Redis().Addr(), tableSettings{member: "two"}), `proc: ""`, "proc: 127.0.0.1:0") + confirmingRule
	gate := s.Gate(s.Build("./cmd/sidecar", false), confirming, "ORDERS_DSN="+table.dsn)
	admins = append(admins, s.GateAddr(s.gate, "admin"), strings.TrimPrefix(tables.admin, "http://"), s.GateAddr(gate, "admin"))
	for _, admin := range admins {
		exposed = append(exposed, exposedBy(t, "http://"+admin)...)
	}
	return exposed, admins
}

// withOnceAndConditions adds rules with stored answers and with conditions.
func withOnceAndConditions(yaml string) string {
	return yaml + `
  - name: payment
    match: {methods: [POST], path: /payments}
    once: {by: idempotency-key, max_body: 4}
  - name: ready-settle
    match: {methods: [POST], path: "/ready/{id}"}
    id: {path: id, format: digits}
    settle: {lock: settlement, require: [{latch: "loaders:{id}"}, {time: {}}]}
`
}

// confirmingRule has the metrics of creates that a table confirms.
const confirmingRule = `
  - name: create
    match: {methods: [POST], path: /orders}
    id: {header: x-order-id}
    create: {filter: orders, learn: {response_json: id}, dedup: {confirm: orders-db}}
`

func exposedBy(t *testing.T, admin string) (list []series) {
	resp, err := client.Get(admin + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			list = append(list, parseSeries(line)...)
		}
	}
	return list
}

// series is a metric with its labels, or a selector with its matchers.
type series struct {
	text, name string
	labels     map[string]labelMatcher
}

// labelMatcher is how a selector compares a label; that of a series is "=".
type labelMatcher struct{ op, value string }

var (
	seriesPattern = regexp.MustCompile(`\b(up|ordergate_[a-z_]+)\b(?:\{([^}]*)\})?`)
	labelPattern  = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
)

// parseSeries finds the series or selectors of a text.
func parseSeries(text string) (list []series) {
	for _, m := range seriesPattern.FindAllStringSubmatch(text, -1) {
		s := series{text: m[0], name: m[1], labels: make(map[string]labelMatcher)}
		for _, l := range labelPattern.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = labelMatcher{l[2], l[3]}
		}
		list = append(list, s)
	}
	return list
}

// matches reports whether a selector finds a series.
func (s series) matches(t *testing.T, other series) bool {
	t.Helper()
	for name, m := range s.labels {
		got, ok := other.labels[name]
		if !ok { // a label that no series has compares as ""; here it is a mistake
			return false
		}
		pattern, err := regexp.Compile(`^(?:` + m.value + `)$`)
		must(t, err)
		same := got.value == m.value
		if strings.HasSuffix(m.op, "~") {
			same = pattern.MatchString(got.value)
		}
		if same == strings.HasPrefix(m.op, "!") {
			return false
		}
	}
	return true
}

// labelNames returns the names in order, without the one that a scrape adds.
func (s series) labelNames() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.labels)), func(name string) bool { return name == "instance" })
}

package metrics

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/ordergate/ordergate/internal/gate"
)

var update = flag.Bool("update", false, "write docs/metrics.md and the dashboard")

// described is a metric as the page and the dashboard have it.
type described struct {
	name, help string
	kind       dto.MetricType
	labels     []string
}

// groups are the sections of the page, and the rows of the dashboard: of a metric that is the last one
// with a prefix of its name.
var groups = []struct {
	title    string
	prefixes []string
}{
	{"Requests", []string{"decision", "refused", "learned"}},
	{"Creates that are confirmed", []string{"dedup"}},
	{"Locks and settlements", []string{"lock", "settlements", "condition"}},
	{"Answers that are given again", []string{"once"}},
	{"Filters", []string{"filter", "verify", "source"}},
	{"The change log", []string{"filter_log", "filter_doubts"}},
	{"The process", []string{"build", "config", "decision_log", "doctor", "spans"}},
}

// groupOf returns the index of a metric's group, -1 if there is none.
func groupOf(name string) int {
	found, longest := -1, ""
	for i, g := range groups {
		for _, prefix := range g.prefixes {
			if strings.HasPrefix(name, "ordergate_"+prefix) && len(prefix) > len(longest) {
				found, longest = i, prefix
			}
		}
	}
	return found
}

// all returns every metric, as the registry describes it. Those of the source are all of them.
func all(t *testing.T) (list []described) {
	t.Helper()
	m := New("v", time.Unix(1, 0))
	r := m.Recorder([]Rule{{Name: "rule", Lock: "lock"}})
	r.Decided(0, gate.ActionSettle, gate.VerdictAcquired, false, time.Millisecond, "")
	r.Refused(0, 1)
	r.Learned(0, nil)
	r.Once(0, 0)
	m.Conditions("rule", []string{"condition"})
	m.Confirms("rule")
	m.Verified("filter")
	m.Mark("valid")
	m.Lock("lock")
	m.LockGauges("lock", func() int { return 0 }, func() int { return 0 })
	m.InFlightGauges(func() (int, int, int) { return 0, 0, 0 })
	m.SourceGauges("filter", "source", func() (time.Duration, bool) { return 0, true })
	m.DroppedDecisions("acted", func() uint64 { return 0 })
	m.Traces(func() uint64 { return 0 })
	number := func() uint64 { return 0 }
	share := func() float64 { return 0 }
	m.FilterGauges("filter", Filter{
		IDs: number, Capacity: number, FillRatio: share, State: func() string { return "ready" },
		Log:        func() Log { return Log{Doubts: map[string]uint64{"term": 0}} },
		Reconciled: func() (uint64, uint64) { return 0, 0 },
	})
	m.MeasureGauges("filter", Measures{
		PassedButMissing: number, MeasuredRate: share, EstimatedRate: share, Alarmed: func() bool { return false }, ProbedIDs: number, ProbesDropped: number,
	})
	m.SnapshotGauges("filter", Snapshot{Age: func() time.Duration { return 0 }, Bytes: number, Errors: number})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "ordergate_") {
			continue // of the client library
		}
		d := described{name: f.GetName(), help: f.GetHelp(), kind: f.GetType()}
		for _, l := range f.GetMetric()[0].GetLabel() {
			d.labels = append(d.labels, l.GetName())
		}
		list, names = append(list, d), append(names, d.name)
	}
	if diff := cmp.Diff(namesInSource(t), names); diff != "" {
		t.Errorf("the source names other metrics than are registered (-source +registered):\n%s", diff)
	}
	return list
}

// namesInSource returns the names of the package's metrics.
func namesInSource(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`"(ordergate_[a-z_]+)"`).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestConventions holds the metrics to Prometheus's conventions for names and texts.
func TestConventions(t *testing.T) {
	for _, d := range all(t) {
		isCounter := d.kind == dto.MetricType_COUNTER
		switch {
		case strings.HasSuffix(d.name, "_total") != isCounter:
			t.Errorf("%s: a counter ends with _total, and nothing else does", d.name)
		case d.kind == dto.MetricType_HISTOGRAM && !strings.HasSuffix(d.name, "_seconds"):
			t.Errorf("%s: no base unit", d.name)
		case regexp.MustCompile(`_(ms|millis|milliseconds|minutes|kb|mb|percent)(_|$)`).MatchString(d.name):
			t.Errorf("%s: no base unit", d.name)
		case !regexp.MustCompile(`^[A-Z0-9].*[^.]\.$`).MatchString(d.help) || strings.Contains(d.help, "|"):
			t.Errorf("%s: %q is no sentence", d.name, d.help)
		case groupOf(d.name) < 0:
			t.Errorf("%s: is in no group", d.name)
		}
	}
}

// TestPage compares docs/metrics.md with the registry.
func TestPage(t *testing.T) {
	const path = "../../docs/metrics.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for i, g := range groups {
		var table strings.Builder
		table.WriteString("\n\n| metric | type | value |\n|---|---|---|\n")
		for _, d := range all(t) {
			if groupOf(d.name) != i {
				continue
			}
			name := d.name
			if d.labels != nil {
				name += "{" + strings.Join(d.labels, ",") + "}"
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, strings.ToLower(d.kind.String()), strings.TrimSuffix(strings.ToLower(d.help[:1])+d.help[1:], "."))
		}
		at := regexp.MustCompile(`(?m)(^## ` + regexp.QuoteMeta(g.title) + `)\n\n\| metric \|.*\n(?:\|.*\n)+`)
		if !at.MatchString(text) {
			t.Errorf("%s: the page has no table below %q", path, g.title)
		}
		text = at.ReplaceAllStringFunc(text, func(found string) string { return at.FindStringSubmatch(found)[1] + table.String() })
	}
	compare(t, path, page, []byte(text))
}

// compare checks that a file has what is generated, or writes it with -update.
func compare(t *testing.T, path string, have, want []byte) {
	t.Helper()
	switch diff := cmp.Diff(string(have), string(want)); {
	case diff == "":
	case *update:
		if err := os.WriteFile(path, want, 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not that of the metrics: go test ./internal/metrics -update (-have +want):\n%s", path, diff)
	}
}

// panel is a panel of Grafana's dashboard.
type panel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	Datasource  *datasource  `json:"datasource,omitempty"`
	GridPos     gridPos      `json:"gridPos"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
	Options     *options     `json:"options,omitempty"`
	Targets     []target     `json:"targets,omitempty"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type fieldConfig struct {
	Defaults  map[string]any `json:"defaults"`
	Overrides []any          `json:"overrides"`
}

type options struct {
	Legend  map[string]any `json:"legend"`
	Tooltip map[string]any `json:"tooltip"`
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

// TestDashboard compares Grafana's dashboard with the registry: each metric has a panel, by its type
// and the unit in its name.
func TestDashboard(t *testing.T) {
	const (
		path          = "../../examples/prometheus/dashboard.json"
		width, height = 8, 7 // three beside each other
	)
	var panels []panel
	y := 0
	for i, g := range groups {
		panels = append(panels, panel{ID: len(panels) + 1, Type: "row", Title: g.title, GridPos: gridPos{1, 24, 0, y}})
		y++
		n := 0
		for _, d := range all(t) {
			if groupOf(d.name) == i {
				p := d.panel()
				p.ID, p.GridPos = len(panels)+1, gridPos{height, width, n % 3 * width, y + n/3*height}
				panels = append(panels, p)
				n++
			}
		}
		y += (n + 2) / 3 * height
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(map[string]any{
		"title": "ordergate", "uid": "ordergate", "schemaVersion": 39, "timezone": "browser", "refresh": "30s", "editable": true,
		"time": map[string]any{"from": "now-1h", "to": "now"}, "tags": []string{"ordergate"}, "panels": panels,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, path, have, text.Bytes())
}

// panel returns the panel of a metric.
func (d described) panel() panel {
	title := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(d.name, "ordergate_"), "_total"), "_seconds")
	title = strings.ReplaceAll(title, "_", " ")
	legend := "{{" + strings.Join(d.labels, "}} {{") + "}}"
	by := strings.Join(d.labels, ", ")
	if d.labels == nil {
		legend, by = "{{instance}}", "instance"
	}
	unit, expr := "short", fmt.Sprintf("max by (%s) (%s)", by, d.name)
	switch {
	case d.kind == dto.MetricType_COUNTER:
		unit, expr = "cps", fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, d.name)
	case strings.HasSuffix(d.name, "_last_reload_seconds"): // a point in time
		unit, expr = "s", fmt.Sprintf("time() - max by (%s) (%s)", by, d.name)
	case strings.HasSuffix(d.name, "_seconds"):
		unit = "s"
	case strings.HasSuffix(d.name, "_bytes"):
		unit = "bytes"
	case strings.HasSuffix(d.name, "_ratio"), strings.HasSuffix(d.name, "_rate"):
		unit = "percentunit"
	}
	targets := []target{{"A", expr, legend}}
	if d.kind == dto.MetricType_HISTOGRAM {
		targets = nil
		for i, q := range []string{"0.5", "0.99"} {
			targets = append(targets, target{
				string(rune('A' + i)), fmt.Sprintf("histogram_quantile(%s, sum by (%s, le) (rate(%s_bucket[$__rate_interval])))", q, by, d.name), legend + " p" + q[2:],
			})
		}
	}
	return panel{
		Type: "timeseries", Title: strings.ToUpper(title[:1]) + title[1:], Description: d.help,
		Datasource: &datasource{"prometheus", "${datasource}"}, Targets: targets,
		FieldConfig: &fieldConfig{map[string]any{"unit": unit, "min": 0}, []any{}},
		Options: &options{
			map[string]any{"displayMode": "table", "placement": "right", "calcs": []string{"last"}}, map[string]any{"mode": "multi"},
		},
	}
}

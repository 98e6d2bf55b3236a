package command

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/admin"
)

// replayed has a rule of each kind, with IDs that a log shows and others.
const replayed = `
filters: {orders: {}}
redis: {}
locks: {settlement: {}}
rules:
  - name: lookup
    match: {methods: [GET, HEAD], path: "/orders/{id}"}
    id: {path: id}
    lookup: {filter: orders}
    mode: observe
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    settle: {lock: settlement, once: {keep: 1h}}
  - name: create
    match: {methods: [POST], path: /orders}
    create: {filter: orders, learn: {response_json: id}}
  - name: pay
    match: {methods: [POST], path: /pay}
    id: {json: orderId}
    settle: {lock: settlement}
`

// replayedLog is not in the order of its times.
const replayedLog = `[2026-11-27T10:00:00.000+0100] "GET /orders/1 HTTP/1.1" 200 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:00.100+0100] "GET /orders/9 HTTP/1.1" 404 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:00.200+0100] "GET /orders/9 HTTP/1.1" 404 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:00.300+0100] "GET /orders/8 HTTP/1.1" 404 NR 0 1 5 - "10.0.0.1" "curl" "-" "shop" "-"
[2026-11-27T10:00:00.400+0100] "GET /orders/2 HTTP/1.1" 404 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:00.500+0100] "GET /orders/2 HTTP/1.1" 200 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:00.600+0100] "GET /orders/042 HTTP/1.1" 200 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:00.700+0100] "POST /orders/1;x/settle HTTP/1.1" 200 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:02.000+0100] "POST /orders/1/settle HTTP/1.1" 200 - 0 1 500 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:01.000+0100] "POST /orders/1/settle HTTP/1.1" 503 UF 0 1 1500 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T10:00:03.000+0100] "POST /orders/1/settle HTTP/1.1" 200 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T11:00:03.000+0100] "POST /orders/1/settle HTTP/1.1" 200 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T11:00:04.000+0100] "POST /orders HTTP/1.1" 201 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T11:00:06.000+0100] "POST /orders HTTP/1.1" 201 - 0 1 5 4 "10.0.0.1" "curl" "-" "shop" "b:80"
[2026-11-27T11:00:06.000+0100] "POST /orders HTTP/1.1" 201 - 0 1 5 4 "10.0.0.2" "curl" "-" "shop" "b:80"
[2026-11-27T11:00:06.100+0100] "POST /orders HTTP/1.1" 500 - 0 1 5 4 "10.0.0.2" "curl" "-" "shop" "b:80"
[2026-11-27T11:00:06.200+0100] "POST /pay HTTP/1.1" 200 - 0 1 5 4 "10.0.0.2" "curl" "-" "shop" "b:80"
[2026-11-27T11:00:06.300+0100] "GET / HTTP/1.1" 200 - 0 1 5 4 "10.0.0.2" "curl" "-" "shop" "b:80"
`

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReplay(t *testing.T) {
	t.Parallel()
	file, log := writeConfig(t, replayed), writeFile(t, "access.log", replayedLog)
	code, stdout, stderr := command(t.Context(), "replay", "--config", file, log)
	want := `
requests     18 of form envoy
time         2026-11-27 10:00:00 +0100 to 2026-11-27 11:00:06 +0100
orders       the backend's answers in the log: 404 and 410 mean that there is no such order, unless another answer shows it
rules        as if all were enforced; the file only observes lookup

RULE     ACTION  REQUESTS  VERDICTS
lookup   lookup  7         absent 2, invalid 1, maybe 3, unknown 1
settle   settle  5         invalid 1
create   create  4         
pay      settle  1         not to be seen in a log 1
no rule          1         

lookups      2 of 7 refused (28.6%), of 1 order
             1 go on: their answers do not show whether the order exists (--sources or --csv does)
settlements  settle: 4 of 1 order
             1 overlapped another one of their order (by start and duration): 1 order
             1 came after one that succeeded (the stored answer would be given): 1 order
creates      create: 3 succeeded, 1 may be doubled: the same order, or none and the same client within 3s
refused      1 of lookup: malformed_id: the order ID is malformed
first        ` + log + `, line 7
path         /orders/042
byte                 ^ 0x30 '0', offset 8
refused      1 of settle: malformed_id: the order ID is malformed
first        ` + log + `, line 8
path         /orders/1;x/settle
byte                  ^ 0x3b ';', offset 9
peak         2026-11-27 10:00 +0100: 5 of 11 requests spared the backend, 0.1 a second
`
	want = "log          " + log + ", 18 lines" + want
	if code != exitDone || stdout != want || stderr != "" {
		t.Errorf("exit code %d, %s%s, want\n%s", code, stdout, stderr, want)
	}
}

// TestReplaySources has the orders in a file, and answers that contradict it.
func TestReplaySources(t *testing.T) {
	t.Parallel()
	ids := writeFile(t, "orders.csv", "1\n9\n")
	file := writeConfig(t, strings.Replace(replayed, "{orders: {}}", "{orders: {sources: [all]}}\nsources: {all: {kind: csv, path: "+ids+"}}", 1))
	log := writeFile(t, "access.log", replayedLog)
	for _, args := range [][]string{{"--sources"}, {"--csv", ids}, {"--csv", "orders=" + ids}} {
		code, stdout, stderr := command(t.Context(), append([]string{"replay", "--config", file, "--json", log}, args...)...)
		var r replayReport
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitDone {
			t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
		}
		lookup := r.Rules[0]
		if r.Lookups.Refused != 3 || r.Lookups.Orders.Number != 2 || lookup.Contradicted != 1 || *lookup.FirstContradicted != (place{log, 6}) {
			t.Errorf("%v: %+v, %+v", args, r.Lookups, lookup)
		}
	}
}

// TestReplayOnce has a log that can be read only once: an order is shown by the lines before.
func TestReplayOnce(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	root := newCommand(&out, &errs, func(string) string { return "" })
	root.SetArgs([]string{"replay", "--config", writeConfig(t, replayed), "--json", "-"})
	root.SetIn(strings.NewReader(replayedLog))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var r replayReport
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || r.Lookups.Refused != 3 || r.Logs[0].Name != "standard input" {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestReplayMerges has the lines of one log in two.
func TestReplayMerges(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, replayed)
	var parts [2]string
	n := 0
	for line := range strings.Lines(replayedLog) {
		parts[n%2] += line
		n++
	}
	code, merged, stderr := command(t.Context(), "replay", "--config", file, "--json", writeFile(t, "a.log", parts[1]), writeFile(t, "b.log", parts[0]))
	_, whole, _ := command(t.Context(), "replay", "--config", file, "--json", writeFile(t, "access.log", replayedLog))
	if code != exitDone {
		t.Fatal(stderr)
	}
	var a, b replayReport
	for text, r := range map[string]*replayReport{merged: &a, whole: &b} {
		if err := json.Unmarshal([]byte(text), r); err != nil {
			t.Fatal(err)
		}
		r.Logs, r.Faults = nil, nil
	}
	var x, y strings.Builder
	_, _ = admin.WriteJSON(&x, a), admin.WriteJSON(&y, b)
	if x.String() != y.String() {
		t.Errorf("merged: %s\nwhole: %s", x.String(), y.String())
	}
}

// TestReplayInstants compares settlements by instants: through a change of clocks, in logs of several
// zones and forms, around lines of 1 MB, and where a log ends early.
func TestReplayInstants(t *testing.T) {
	t.Parallel()
	nginx := func(at string, order int, took string) string {
		return fmt.Sprintf("10.0.0.1 - - [%s] \"POST /orders/%d/settle HTTP/1.1\" 500 12 \"-\" \"curl\" %s\n", at, order, took)
	}
	const envoy = `[2026-11-27T09:00:00.000Z] "POST /orders/5/settle HTTP/1.1" 500 - 0 1 2000 4 "10.0.0.1" "curl" "-" "shop" "b:80"` + "\n"
	autumn := nginx("25/Oct/2026:02:59:59 +0200", 1, "0.500") + nginx("25/Oct/2026:02:00:01 +0100", 1, "3.000") + // 2 s later
		nginx("25/Oct/2026:02:30:00 +0200", 2, "5.000") + nginx("25/Oct/2026:02:30:00 +0100", 2, "5.000") // an hour later
	west := nginx("27/Nov/2026:04:00:02 -0500", 5, "1.000")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for i := range 2000 { // each within a second of its own, so that none overlaps
		_, _ = w.Write([]byte(nginx(time.Unix(1795773600+int64(i), 0).UTC().Format("02/Jan/2006:15:04:05 -0700"), 7, "0.500")))
	}
	_ = w.Close()
	for _, tt := range []struct {
		name string
		logs []string
		want []string
		code int
	}{
		{"autumn", []string{autumn}, []string{"settle: 4 of 2 orders", " 1 overlapped another one of their order (by start and duration): 1 order\n", "time         2026-10-25 02:29:55 +0200 to 2026-10-25 03:29:55 +0200"}, exitDone},
		{"spring", []string{nginx("29/Mar/2026:01:59:59 +0100", 3, "1.000") + nginx("29/Mar/2026:03:00:00 +0200", 3, "1.500")}, []string{" 1 overlapped"}, exitDone},
		{"two zones", []string{envoy, west}, []string{" 1 overlapped", "time         2026-11-27 09:00:00 +0000 to 2026-11-27 09:00:01 +0000"}, exitDone},
		{"all forms", []string{envoy + strings.Repeat("x", 1<<20) + "\n" + `{"start_time":"2026-11-27T18:00:01.500+09:00","method":"POST","path":"/orders/5/settle","response_code":500,"duration":100}` + "\n" +
			west + `10.0.0.9 - - [27/Nov/2026:14:30:01 +0530] "POST /orders/5/settle HTTP/1.1" 500 12` + "\n"},
			[]string{"1 lines of more than 262144 bytes skipped, the first is line 2", "settle: 4 of 1 order", " 3 overlapped another one of their order (by start and duration; by the second where a line has no duration: 1): 1 order"}, exitDone},
		{"cut in a line", []string{autumn + west[:70]}, []string{"1 lines are no requests, the first is line 5", "settle: 4 of 2 orders"}, exitDone},
		{"cut in its status", []string{envoy + strings.SplitAfter(west, `" 50`)[0]}, []string{"1 lines are no requests, the first is line 2", "settle: 1 of 1 order"}, exitDone},
		{"a cut gzip", []string{packed.String()[:packed.Len()*2/3]}, []string{"it ends early, in line ", " 0 overlapped"}, exitFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"replay", "--config", writeConfig(t, replayed)}
			for _, text := range tt.logs {
				args = append(args, writeFile(t, "access.log", text))
			}
			code, stdout, stderr := command(t.Context(), args...)
			for _, want := range tt.want {
				if !strings.Contains(stdout, want) || code != tt.code {
					t.Errorf("exit code %d, %s%s, want %s", code, stdout, stderr, want)
				}
			}
		})
	}
}

func TestReplayBad(t *testing.T) {
	t.Parallel()
	file, log := writeConfig(t, replayed), writeFile(t, "access.log", replayedLog)
	for _, tt := range []struct {
		name, want string
		args       []string
		code       int
	}{
		{"no log", "replay: which log? (a file, or - for standard input)", nil, exitUsage},
		{"another form", "replay: --format: \"iis\" is not one of envoy, json, nginx, apache, har", []string{"--format", "iis", log}, exitUsage},
		{"the wrong form", "replay: " + log + " has no request in its first 18 lines: want a combined log of nginx or Apache; line 1 begins with \"[2026-11-27T10:00:00.000+0100]", []string{"--format", "nginx", log}, exitUsage},
		{"no file", "replay: open " + log + "x: no such file or directory", []string{log + "x"}, exitUsage},
		{"the same twice", "replay: " + log + " is there twice", []string{log, log}, exitUsage},
		{"a URL as the host", "replay: --host: \"https://shop\" is not the name of a host", []string{"--host", "https://shop", log}, exitUsage},
		{"a directory", ": is a directory", []string{filepath.Dir(log)}, exitUsage},
		{"an empty file", "is empty", []string{writeFile(t, "empty.log", "")}, exitUsage},
		{"both", "replay: --sources and --csv exclude each other", []string{"--sources", "--csv", log, log}, exitUsage},
		{"no sources", "replay: filters.orders has no sources", []string{"--sources", log}, exitFailed},
		{"another filter", "replay: --csv: no rule of " + file + " looks up in a filter \"other\"", []string{"--csv", "other=" + log, log}, exitUsage},
		{"no IDs", "replay: filter orders: loading: source " + log + ":", []string{"--csv", log, log}, exitFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := command(t.Context(), append([]string{"replay", "--config", file}, tt.args...)...)
			if code != tt.code || !strings.Contains(stderr, tt.want) || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, %s%s, want %s", code, stdout, stderr, tt.want)
			}
		})
	}
}

// BenchmarkReplay replays a log of 100,000 requests, of which 7 in 10 look up orders that do not
// exist: twice, as the first reading finds the orders that do.
func BenchmarkReplay(b *testing.B) {
	file := filepath.Join(b.TempDir(), "ordergate.yaml")
	log := filepath.Join(b.TempDir(), "access.log")
	var text strings.Builder
	const lines = 100_000
	for i := range lines {
		request, status := fmt.Sprintf("GET /orders/%d", 1_000_000+i), 404
		switch i % 10 {
		case 7, 8:
			request, status = fmt.Sprintf("GET /orders/%d", i), 200
		case 9:
			request, status = fmt.Sprintf("POST /orders/%d/settle", i/100), 200
		}
		fmt.Fprintf(&text, "[2026-11-27T10:%02d:%02d.%03dZ] \"%s HTTP/1.1\" %d - 0 1 5 4 \"10.0.0.1\" \"curl\" \"-\" \"shop\" \"b:80\"\n", i/60_000, i/1000%60, i%1000, request, status)
	}
	if err := errors.Join(os.WriteFile(file, []byte(replayed), 0o600), os.WriteFile(log, []byte(text.String()), 0o600)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if code, _, stderr := command(b.Context(), "replay", "--config", file, log); code != exitDone {
			b.Fatal(stderr)
		}
	}
	b.ReportMetric(float64(b.N)*lines/b.Elapsed().Seconds(), "lines/s")
}

package engine

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// reloadable is a file with everything that a reload is about.
const reloadable = `
redis: {addresses: [ADDR]}
filters: {orders: {sources: [seed]}}
sources: {seed: {kind: csv, path: SEED}}
locks:
  settlement: {lease: 30s}
  merchants: {kind: semaphore, permits: 2, key: "merchant:{id}"}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id}
    lookup: {filter: orders}
  - name: create
    match: {methods: [POST], path: /orders}
    create: {filter: orders, learn: {response_json: id}}
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    settle: {lock: settlement}
`

// reloadBed is an engine that follows a file.
type reloadBed struct {
	*Engine
	t     *testing.T
	file  string
	text  string // in the file at first
	out   *bedtest.Log
	redis *redis.Client
	hup   chan os.Signal
}

func newReloadBed(t *testing.T) *reloadBed {
	t.Helper()
	server := bedtest.New(t).Redis()
	seed := filepath.Join(t.TempDir(), "seed")
	bedtest.Check(t, os.WriteFile(seed, []byte("1\n2\n3\n"), 0o600))
	b := &reloadBed{
		t: t, out: &bedtest.Log{}, hup: make(chan os.Signal, 1),
		text:  strings.NewReplacer("ADDR", server.Addr(), "SEED", seed).Replace(reloadable),
		redis: redis.NewClient(&redis.Options{Addr: server.Addr()}),
	}
	t.Cleanup(func() { _ = b.redis.Close() })
	b.file = writeConfig(t, b.text)
	load := func() (*config.Effective, error) { return LoadEffective(b.file, config.Options{}) }
	e, err := load()
	bedtest.Check(t, err)
	b.Engine, err = build(t.Context(), e.Config, slog.New(slog.NewTextHandler(b.out, nil)))
	bedtest.Check(t, err)
	t.Cleanup(b.Close)
	b.ReloadFrom(b.file, e, load, b.hup, nil)
	return b
}

// with returns the first text with parts of it replaced, which have to be there.
func (b *reloadBed) with(pairs ...string) string {
	b.t.Helper()
	text := b.text
	for i := 0; i+1 < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			b.t.Fatalf("the file has no %q", pairs[i])
		}
		text = bedtest.Replace(text, pairs[i], pairs[i+1])
	}
	return text
}

// without returns the first text up to a part of it.
func (b *reloadBed) without(part string) string {
	b.t.Helper()
	text, _, ok := strings.Cut(b.text, part)
	if !ok {
		b.t.Fatalf("the file has no %q", part)
	}
	return text
}

// metric returns a line of the metrics.
func (b *reloadBed) metric(line string) (value string) {
	b.t.Helper()
	w := httptest.NewRecorder()
	b.AdminServer(func() bool { return false }).Handler.ServeHTTP(w, httptest.NewRequestWithContext(b.t.Context(), "GET", "http://localhost/metrics", nil))
	for l := range strings.Lines(w.Body.String()) {
		if v, ok := strings.CutPrefix(l, line+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return "none"
}

func (b *reloadBed) result(name string) string {
	return b.metric(`ordergate_config_reload_total{result="` + name + `"}`)
}

// write changes the file and waits until it has been read.
func (b *reloadBed) write(text, result string) {
	b.t.Helper()
	before := b.result(result)
	replaceFile(b.t, b.file, text)
	bedtest.Eventually(b.t, "a reload that is "+result, func() bool { return b.result(result) != before })
}

func (b *reloadBed) condition() string {
	list := b.conditions(b.t.Context(), false)
	for _, c := range list {
		if c.Name == "configuration" {
			if !c.Ready {
				b.t.Error("the configuration takes readiness away")
			}
			return c.Reason
		}
	}
	b.t.Fatal("there is no condition")
	return ""
}

// absentStatus is what a lookup of an absent order is answered.
func absentStatus(g *gate.Gate) int {
	for _, p := range g.Policies() {
		if p.Rule.Name == "lookup" {
			return p.Lookup.Absent.Status
		}
	}
	return 0
}

func TestReload(t *testing.T) {
	t.Parallel()
	b := newReloadBed(t)
	if got := absentStatus(b.Gate()); got != 404 {
		t.Fatalf("absent is answered %d", got)
	}
	gone := b.with("lookup: {filter: orders}", "lookup: {filter: orders, absent: {status: 410}}")
	b.write(gone, "applied")
	if got := absentStatus(b.Gate()); got != 410 {
		t.Errorf("absent is answered %d", got)
	}
	if !strings.Contains(b.out.String(), `reload: the new configuration is in force`) || !strings.Contains(b.out.String(), "changed=rules.lookup") {
		t.Errorf("logged %s", b.out)
	}
	since := b.metric("ordergate_config_last_reload_seconds")

	b.write(gone+"# a comment\n", "unchanged")

	b.write(strings.ReplaceAll(gone, "path: id", "path: nr"), "refused")
	if why := b.condition(); !strings.Contains(why, "the old one stays: "+b.file+":11: rules[0].id.path: ") || !strings.Contains(why, "; "+b.file+":18: ") {
		t.Errorf("condition %q", why)
	}
	for _, want := range []string{`violation="` + b.file + `:11: rules[0].id.path: `, `violation="` + b.file + `:18: rules[2].id.path: `} {
		if !strings.Contains(b.out.String(), want) {
			t.Errorf("the log has no %s: %s", want, b.out)
		}
	}
	if absentStatus(b.Gate()) != 410 || b.metric("ordergate_config_reload_success") != "0" || b.metric("ordergate_config_last_reload_seconds") != since {
		t.Error("a bad file changed something")
	}

	// It is told of again when somebody asks, and not for each write.
	refused := b.result("refused")
	said := strings.Count(b.out.String(), "rules[0].id.path")
	b.hup <- syscall.SIGHUP
	bedtest.Eventually(t, "an answer to SIGHUP", func() bool { return b.result("refused") != refused })
	if n := strings.Count(b.out.String(), "rules[0].id.path"); n != 2*said {
		t.Errorf("told %d times, %d before", n, said)
	}

	b.write(gone, "unchanged")
	if b.condition() != "" || b.metric("ordergate_config_reload_success") != "1" {
		t.Errorf("after the file was mended: %q", b.condition())
	}
	b.write(strings.ReplaceAll(gone, "redis:", "redis"), "refused")
	b.write(b.text, "applied")
	if b.condition() != "" || absentStatus(b.Gate()) != 404 {
		t.Errorf("after a good file: %q", b.condition())
	}
}

// TestReloadTakesRestart looks for changes that are refused whole, and named.
func TestReloadTakesRestart(t *testing.T) {
	t.Parallel()
	b := newReloadBed(t)
	before := b.Gate()
	for _, tt := range []struct{ name, text, want string }{
		{"redis and a filter", b.with("addresses: [127", "addresses: [localhost", "{sources: [seed]}", "{sources: [seed], capacity: 5000}"),
			"redis.addresses, filters.orders.capacity: take a restart"},
		{"a new filter", b.with("filters: {", "filters: {other: {}, "), "filters.other: takes a restart"},
		{"a source", b.with("kind: csv, path: ", "kind: csv, path: /other"), "sources.seed.path: takes a restart"},
		{"IDs in another case", b.with("{path: id}\n    settle", "{path: id, format: pattern, pattern: \"[0-9]+x?\", case: lower}\n    settle"), "rules.settle.id: takes a restart"},
		{"a listener", "listen: {http: 127.0.0.1:0}\n" + b.text, "listen.http: takes a restart"},
		{"another form of IDs", b.with("{path: id}\n    lookup", "{path: id, format: uuid}\n    lookup"), "rules.lookup (the form of the IDs of filter orders): takes a restart"},
		{"a form of IDs more", b.text + "  - {name: more, match: {methods: [GET], path: \"/more/{id}\"}, id: {path: id, format: uuid}, lookup: {filter: orders}}\n",
			"rules.more (the form of the IDs of filter orders): takes a restart"},
		{"the key of a lock", b.with("{lease: 30s}", "{key: \"other:{id}\"}"), "locks.settlement.key: takes a restart"},
		{"the kind of a lock, and what is fine", b.with("{lease: 30s}", "{lease: 20s, kind: fair}"), "locks.settlement.kind: takes a restart"},
		{"another lock", b.with("locks:\n", "locks:\n  other: {key: \"other:{id}\"}\n", "lock: settlement", "lock: other"), "rules.settle.settle.lock: takes a restart"},
		{"another rule for the same requests, with another lock", b.with("locks:\n", "locks:\n  other: {key: \"other:{id}\"}\n",
			"name: settle\n", "name: pay\n", "/{id}/settle", "/{nr}/settle", "{path: id}\n    settle", "{path: nr}\n    settle", "lock: settlement", "lock: other"), "rules.pay.settle.lock: takes a restart"},
		{"a rule before it, with another lock", b.with("locks:\n", "locks:\n  other: {key: \"other:{id}\"}\n",
			"rules:\n", "rules:\n  - {name: first, match: {methods: [PUT, POST], path: \"/orders/{id}/settle\", query: {fast: on1}}, id: {path: id}, settle: {lock: other}}\n"),
			"rules.first.settle.lock: takes a restart"},
		{"IDs in another form, of which a lock has another key", b.with("{path: id}\n    settle", "{path: id, format: uuid}\n    settle"), "rules.settle.id: takes a restart"},
	} {
		b.write(tt.text, "refused")
		if want := "the old one stays: " + tt.want; b.condition() != want {
			t.Errorf("%s: condition %q, want %q", tt.name, b.condition(), want)
		}
		if want := `level=ERROR msg="reload: ` + tt.want + `; the old configuration stays"`; !strings.Contains(b.out.String(), want) {
			t.Errorf("%s: the log has no %s", tt.name, want)
		}
		if b.Gate() != before {
			t.Errorf("%s: something was applied", tt.name)
		}
		if n := b.openLockers(); n != 1 {
			t.Errorf("%s: %d lockers", tt.name, n)
		}
	}
	for _, tt := range []struct{ name, text string }{
		{"another rule with the same form", b.text + "  - {name: more, match: {methods: [GET], path: \"/more/{id}\"}, id: {path: id}, lookup: {filter: orders}}\n"},
		{"a lock that nobody settles with", b.with("key: \"merchant:{id}\"", "key: \"m:{id}\"")},
		{"observe", b.text + "    mode: observe\n"},
		{"enforce", b.text},
		{"the backend", "backend: tomcat\n" + b.text},
		{"the front controllers", "front_controllers: [/shop.php]\n" + b.text},
		{"the metadata of decisions", "log: {metadata: false}\n" + b.text},
		{"what answers mean", "answer: {failed: [{status: 302}]}\n" + b.text},
		{"what they mean, changed", "answer: {failed: [{status: [302, 303]}]}\n" + b.text},
		{"another lock, for other requests", b.with("locks:\n", "locks:\n  other: {key: \"other:{id}\"}\n") +
			"  - {name: host, match: {methods: [POST], path: \"/orders/{id}/refund\", host: shop.example, query: {x: \"1\"}}, id: {path: id}, settle: {lock: other}}\n" +
			"  - {name: other, match: {methods: [POST], path: \"/orders/{id}/refund\"}, id: {path: id}, settle: {lock: other}}\n"},
		{"the same, and another one", b.with("locks:\n", "locks:\n  other: {key: \"other:{id}\"}\n  third: {key: \"third:{id}\"}\n") +
			"  - {name: host, match: {methods: [POST], path: \"/orders/{id}/refund\", host: shop.example, query: {x: \"1\"}}, id: {path: id}, settle: {lock: other}}\n" +
			"  - {name: other, match: {methods: [POST], path: \"/orders/{id}/refund\"}, id: {path: id}, settle: {lock: other}}\n" +
			"  - {name: method, match: {methods: [PUT], path: \"/orders/{id}/refund\"}, id: {path: id}, settle: {lock: third}}\n"},
		{"a limit", b.with("{lock: settlement}", "{lock: settlement, limit: {lock: merchants, id: {header: x-merchant}}}")},
		{"fewer rules", b.without("  - name: settle")},
	} {
		b.write(tt.text, "applied")
		if b.condition() != "" {
			t.Errorf("%s: %q", tt.name, b.condition())
		}
	}
}

// TestFollow tells followers of each gate, in order and never two at once.
func TestFollow(t *testing.T) {
	t.Parallel()
	b := newReloadBed(t)
	var first, second []int
	b.WatchGate(func(g *gate.Gate) { first = append(first, absentStatus(g)) })
	stop := b.WatchGate(func(g *gate.Gate) { second = append(second, absentStatus(g)) })
	for _, status := range []int{410, 451} {
		b.write(b.with("lookup: {filter: orders}", fmt.Sprintf("lookup: {filter: orders, absent: {status: %d}}", status)), "applied")
		stop()
	}
	b.WatchGate(func(*gate.Gate) {})() // waits for the one that is under way
	if diff := cmp.Diff([][]int{{404, 410, 451}, {404, 410}}, [][]int{first, second}); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// TestReloadWhileRedisIsAway puts rules with a new lock in force: readiness stays.
func TestReloadWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	b := newReloadBed(t)
	bedtest.Check(t, b.redis.Do(t.Context(), "client", "pause", "3000", "all").Err())
	b.write(b.with("{lease: 30s}", "{lease: 20s}"), "applied")
	for _, c := range b.conditions(b.t.Context(), false) {
		if strings.HasPrefix(c.Name, "lock") && !c.Ready {
			t.Errorf("%+v", c)
		}
	}
}

const serving = `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0}
filters: {orders: {}}
rules:
  - {name: r, match: {methods: [GET], path: "/{id}"}, id: {path: id}, lookup: {filter: orders}}
`

// TestReloadOfAFileThatChangedAtTheStart has the file change between its first reading
// and the watch.
func TestReloadOfAFileThatChangedAtTheStart(t *testing.T) {
	t.Parallel()
	seed := filepath.Join(t.TempDir(), "seed")
	bedtest.Check(t, os.WriteFile(seed, []byte("id\n"), 0o600))
	file := writeConfig(t, serving)
	load := func() (*config.Effective, error) { return LoadEffective(file, config.Options{}) }
	e, err := load()
	bedtest.Check(t, err)
	replaceFile(t, file, bedtest.Replace(serving, "name: r,", "name: other,"))
	m, err := build(t.Context(), e.Config, slog.New(slog.DiscardHandler))
	bedtest.Check(t, err)
	defer m.Close()
	m.ReloadFrom(file, e, load, nil, nil)
	bedtest.Eventually(t, "the rules of the file", func() bool { return m.Gate().Policies()[0].Rule.Name == "other" })
}

func replaceFile(t *testing.T, file, text string) {
	t.Helper()
	bedtest.Check(t, os.WriteFile(file+".new", []byte(text), 0o600))
	bedtest.Check(t, os.Rename(file+".new", file))
}

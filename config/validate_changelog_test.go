package config

import (
	"testing"
	"time"
)

// tables are sources of each kind.
const tables = `
sources:
  seed: {kind: csv, path: ids.csv}
  db: {kind: mysql, dsn_env: ORDERS_DSN, table: orders, id_column: id}
`

// TestChangeLogs has a case for each rule about what ordergates do together.
func TestChangeLogs(t *testing.T) {
	for _, tt := range []struct {
		name, filter string
		want         []string // of line 1; nil: accepted
	}{
		{"all that there is", "{sources: [seed, db], change_log: {keep: 10_000, lease: 200ms, expel: 10s}, share_load: true, reconcile: {every: 1m, sample: 100_000, rate: 1_000_000}}", nil},
		{"the other ends", "{sources: [db], change_log: {keep: 1_000_000_000, lease: 10s, expel: 24h}, reconcile: {every: 720h, sample: 0, rate: 1}}", nil},
		{"with the defaults", "{sources: [db], change_log: {}, reconcile: {}}", nil},
		{"keep all", "{sources: [db], change_log: {keep: 0}}", nil},
		{"keep all, without a table", "{sources: [seed], change_log: {keep: 0}}", nil},
		{"keep too few", "{sources: [db], change_log: {keep: 9_999}}", []string{"filters.orders.change_log.keep: 9999 is out of range: 10_000 to 1_000_000_000 are allowed, or 0, which keeps all"}},
		{"keep too many", "{sources: [db], change_log: {keep: 1_000_000_001}}", []string{"filters.orders.change_log.keep: 1000000001 is out of range: 10_000 to 1_000_000_000 are allowed, or 0, which keeps all"}},
		{"keep fewer than none", "{sources: [db], change_log: {keep: -1}}", []string{"filters.orders.change_log.keep: -1 is out of range: 10_000 to 1_000_000_000 are allowed, or 0, which keeps all"}},
		{"keep without a table", "{sources: [seed], change_log: {keep: 10_000}}", []string{"filters.orders.change_log.keep: without a table among the sources, trimmed orders could not be read again: remove this"}},
		{"keep without sources", "{change_log: {keep: 10_000}}", []string{"filters.orders.change_log.keep: without a table among the sources, trimmed orders could not be read again: remove this"}},
		{"keep with what may be a table", "{sources: [d-b], change_log: {keep: 10_000}, reconcile: {}}", []string{`filters.orders.sources[0]: "d-b" is not defined under sources, did you mean db?`}},
		{"short lease and patience", "{change_log: {lease: 199ms, expel: 9s}}", []string{
			"filters.orders.change_log.lease: 199ms is out of range: 200ms to 10s are allowed",
			"filters.orders.change_log.expel: 9s is out of range: 10s to 24h are allowed",
		}},
		{"long lease and patience", "{change_log: {lease: 11s, expel: 25h}}", []string{
			"filters.orders.change_log.lease: 11s is out of range: 200ms to 10s are allowed",
			"filters.orders.change_log.expel: 25h is out of range: 10s to 24h are allowed",
		}},
		{"no lease", "{change_log: {lease: 0s}}", []string{"filters.orders.change_log.lease: 0s is out of range: 200ms to 10s are allowed"}},
		{"another key", "{change_log: {trim: 1}}", []string{"filters.orders.change_log.trim: unknown key: known here are expel, keep, lease"}},

		{"reconcile without a table", "{sources: [seed], reconcile: {}}", []string{"filters.orders.reconcile: there is no table among the sources to compare the filter with: add one, or remove this"}},
		{"reconcile, wrong in each", "{sources: [db], reconcile: {every: 59s, sample: -1, rate: 0}}", []string{
			"filters.orders.reconcile.every: 59s is out of range: 1m to 720h are allowed",
			"filters.orders.reconcile.sample: -1 is out of range: 0 to 100000 are allowed",
			"filters.orders.reconcile.rate: 0 is out of range: 1 to 1000000 are allowed",
		}},
		{"reconcile, wrong at the other ends", "{sources: [db], reconcile: {every: 721h, sample: 100_001, rate: 1_000_001}}", []string{
			"filters.orders.reconcile.every: 721h is out of range: 1m to 720h are allowed",
			"filters.orders.reconcile.sample: 100001 is out of range: 0 to 100000 are allowed",
			"filters.orders.reconcile.rate: 1000001 is out of range: 1 to 1000000 are allowed",
		}},
		{"reconcile as a switch", "{sources: [db], reconcile: true}", []string{"filters.orders.reconcile: is true or false: it has to be a mapping"}},

		{"share what is in Redis", "{kind: redis-bitmap, sources: [db], share_load: true}", []string{"filters.orders.share_load: is for kinds in memory only, since a filter in Redis is shared already: remove it"}},
		{"share what is in Redis, too", "{kind: layered, sources: [db], share_load: true}", []string{"filters.orders.share_load: is for kinds in memory only, since a filter in Redis is shared already: remove it"}},
		{"do not share what is in Redis", "{kind: layered, sources: [db], share_load: false}", nil},
		{"share, perhaps", "{sources: [db], share_load: maybe}", []string{`filters.orders.share_load: "maybe" is not true or false`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := "filters: {orders: " + tt.filter + "}" + tables
			var want []string
			for _, text := range tt.want {
				want = append(want, "f.yaml:1: "+text)
			}
			compareViolations(t, file, env{"ORDERS_DSN": "u:p@tcp(a)/b"}, want)
		})
	}
}

// TestTablesThatWereMeant holds nothing against a filter whose source is not understood.
func TestTablesThatWereMeant(t *testing.T) {
	for source, want := range map[string]string{
		"{kind: oracle}": `f.yaml:2: sources.db.kind: "oracle" is not one of csv, mysql, postgres, kafka`,
		"{kind: 1}":      "f.yaml:2: sources.db.kind: is a number: it has to be text, in quotes",
		"{}":             "f.yaml:2: sources.db: kind is missing: give the kind of source: csv, mysql, postgres or kafka",
	} {
		file := "filters: {orders: {sources: [db], change_log: {keep: 10_000}, reconcile: {}}}\nsources: {db: " + source + "}\n"
		compareViolations(t, file, nil, []string{want})
	}
}

// TestDefaultsOfTheLog has what they depend on: the sources, the kind, Redis.
func TestDefaultsOfTheLog(t *testing.T) {
	const file = `
redis: {}
sources:
  seed: {kind: csv, path: ids.csv}
  db: {kind: postgresql, dsn_env: ORDERS_DSN, table: orders, id_column: id}
filters:
  table: {sources: [seed, db]}
  exact: {kind: exact, sources: [db]}
  file: {sources: [seed]}
  nothing: {}
  arrival: {sources: [db], segments: {keep: 3, from: arrival, older: absent}}
  layered: {kind: layered, sources: [db]}
  bitmap: {kind: redis-bitmap, sources: [db]}
  all: {sources: [db], change_log: {keep: 0}, share_load: false, reconcile: {}}
  some: {sources: [db], reconcile: {sample: 0}}
`
	c := mustParse(t, file, env{"ORDERS_DSN": "postgres://a/b"})
	for name, want := range map[string]struct {
		keep  int
		share bool
	}{
		"table": {100_000, true}, "exact": {100_000, true}, "file": {0, false}, "nothing": {0, false},
		"arrival": {0, true}, "layered": {100_000, false}, "bitmap": {100_000, false}, "all": {0, false}, "some": {100_000, true},
	} {
		f := c.Filters[name]
		if log := (ChangeLog{Keep: want.keep, Lease: 2 * time.Second, Expel: 5 * time.Minute}); f.ChangeLog != log {
			t.Errorf("%s has the log %+v, want %+v", name, f.ChangeLog, log)
		}
		if f.ShareLoad == nil || *f.ShareLoad != want.share {
			t.Errorf("%s shares its load: %v, want %v", name, f.ShareLoad, want.share)
		}
	}
	for name, want := range map[string]Reconcile{
		"all": {24 * time.Hour, 1000, 2000}, "some": {24 * time.Hour, 0, 2000},
	} {
		if got := c.Filters[name].Reconcile; got == nil || *got != want {
			t.Errorf("%s is reconciled by %+v, want %+v", name, got, want)
		}
	}
	if c.Filters["table"].Reconcile != nil {
		t.Error("a filter is reconciled without being asked for")
	}

	alone := mustParse(t, "filters: {f: {sources: [db]}}\nsources: {db: {kind: mysql, dsn_env: ORDERS_DSN, table: t, id_column: id}}", env{"ORDERS_DSN": "a"})
	if f := alone.Filters["f"]; alone.Redis != nil || *f.ShareLoad || f.Freshness.Mode != FreshnessNone {
		t.Errorf("without Redis there is %v, share_load %v and freshness %+v", alone.Redis, *f.ShareLoad, f.Freshness)
	}
}

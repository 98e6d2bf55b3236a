package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestVariablesOverrideTheFile(t *testing.T) {
	const file = `
listen: {authz: 127.0.0.1:1111, proc: ""}
filters: {orders: {capacity: 5, freshness: {window: 1s}}, plain-2: {share_load: false}}
sources: {seed: {kind: csv, path: a.csv}, db: {kind: mysql, dsn_env: A_DSN, table: t, id_column: id}}
locks: {settlement: {wait: {tries: 2, every: 1s}}}
`
	c := mustParse(t, file, env{
		"ORDERGATE_BACKEND":                                  "tomcat",
		"ORDERGATE_LISTEN_AUTHZ":                             "127.0.0.1:2222",
		"ORDERGATE_LISTEN_ADMIN":                             "unix:/run/a.sock",
		"ORDERGATE_REDIS_MODE":                               "single",
		"ORDERGATE_REDIS_ADDRESSES":                          " redis:1 ",
		"ORDERGATE_FILTERS_ORDERS_CAPACITY":                  "200_000_000",
		"ORDERGATE_FILTERS_ORDERS_SOURCES":                   "seed",
		"ORDERGATE_FILTERS_ORDERS_FRESHNESS":                 " window ",
		"ORDERGATE_FILTERS_PLAIN_2_FALSE_POSITIVE_RATE":      "0.25",
		"ORDERGATE_FILTERS_PLAIN_2_FRESHNESS":                "window: 200ms",
		"ORDERGATE_FILTERS_PLAIN_2_SHARE_LOAD":               "true",
		"ORDERGATE_FILTERS_PLAIN_2_SOURCES":                  "db",
		"ORDERGATE_FILTERS_PLAIN_2_RECONCILE_EVERY":          "2h",
		"ORDERGATE_FILTERS_PLAIN_2_CHANGE_LOG_KEEP":          "0",
		"ORDERGATE_LISTEN_TOKEN_ENV":                         "TOKEN",
		"ORDERGATE_REDIS_MEMBER":                             "here",
		"ORDERGATE_SOURCES_DB_KIND":                          "mariadb",
		"ORDERGATE_SOURCES_DB_DSN_ENV":                       "B_DSN",
		"ORDERGATE_SOURCES_DB_FOLLOW":                        "binlog",
		"ORDERGATE_SOURCES_DB_SERVER_ID":                     "7",
		"B_DSN":                                              "u:p@tcp(b)/d",
		"TOKEN":                                              "sixteen bytes ...",
		"ORDERGATE_SOURCES_SEED_PATH":                        "/b, c.csv",
		"ORDERGATE_LOCKS_SETTLEMENT_WAIT_EVERY":              "10ms",
		"ORDERGATE_LOCKS_SETTLEMENT_MAX_WAITERS_PER_KEY":     "0",
		"ORDERGATE_LOCKS_SETTLEMENT_ON_UNKNOWN_OUTCOME_HOLD": "1m",
		"ORDERGATE_LISTEN_PROC":                              "",  // as good as not set
		"ORDERGATE_FILTERS_OTHER_CAPACITY":                   "x", // of no filter
	})
	want := mustParse(t, `
backend: tomcat
listen: {authz: 127.0.0.1:2222, proc: "", admin: unix:/run/a.sock, token_env: TOKEN}
redis: {mode: single, addresses: [redis:1], member: here}
filters:
  orders: {capacity: 200_000_000, sources: [seed], freshness: {window: 500ms}}
  plain-2: {false_positive_rate: 0.25, freshness: {window: 200ms}, share_load: true, sources: [db], reconcile: {every: 2h}, change_log: {keep: 0}}
sources:
  seed: {kind: csv, path: "/b, c.csv"}
  db: {kind: mysql, dsn_env: B_DSN, table: t, id_column: id, follow: binlog, server_id: 7}
locks: {settlement: {wait: {tries: 2, every: 10ms}, max_waiters_per_key: 0, on_unknown_outcome: {hold: 1m}}}
`, env{"B_DSN": "u:p@tcp(b)/d", "TOKEN": "sixteen bytes ..."})
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("not as if the file said so (-want +got):\n%s", diff)
	}
	if got := c.Locks["settlement"].Wait.Every; got != 10*time.Millisecond {
		t.Errorf("waits every %v, want 10ms", got)
	}
}

func TestVariablesThatAreWrong(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		env        env
		want       []string
	}{
		{"wrong type", with("", ""), env{"ORDERGATE_FILTERS_ORDERS_CAPACITY": "many"},
			[]string{`environment: ORDERGATE_FILTERS_ORDERS_CAPACITY: "many" is not a whole number such as 1_000_000`}},
		{"unknown backend", with("", ""), env{"ORDERGATE_BACKEND": "apache"},
			[]string{`environment: ORDERGATE_BACKEND: "apache" is not one of strict, tomcat, spring, php`}},
		{"no unit", with("", ""), env{"ORDERGATE_LOCKS_SETTLEMENT_LEASE": "30"},
			[]string{`environment: ORDERGATE_LOCKS_SETTLEMENT_LEASE: "30" has no unit: write it as a duration such as 30s or 100ms`}},
		{"out of range", with("", ""), env{"ORDERGATE_LOCKS_SETTLEMENT_LEASE": "2h"},
			[]string{`environment: ORDERGATE_LOCKS_SETTLEMENT_LEASE: 2h is out of range: 1s to 1h are allowed`}},
		{"bad element", with("redis", "{addresses: ['a:1']}"), env{"ORDERGATE_REDIS_ADDRESSES": "b"},
			[]string{`environment: ORDERGATE_REDIS_ADDRESSES[0]: "b" is not host:port or unix:/path`}},
		{"empty element", with("", ""), env{"ORDERGATE_REDIS_ADDRESSES": "a:1,,b:2"},
			[]string{`environment: ORDERGATE_REDIS_ADDRESSES: has an empty item: separate the items by single commas`}},
		{"dangling name", with("", ""), env{"ORDERGATE_FILTERS_ORDERS_SOURCES": "seed,sead"},
			[]string{`environment: ORDERGATE_FILTERS_ORDERS_SOURCES[1]: "sead" is not defined under sources, did you mean seed?`}},
		{"unknown kind", with("", ""), env{"ORDERGATE_SOURCES_SEED_KIND": "oracle"},
			[]string{`environment: ORDERGATE_SOURCES_SEED_KIND: "oracle" is not one of csv, mysql, postgres, kafka`}},
		{"unknown freshness", with("filters", "{orders: {freshness: {window: 1s}}}"), env{"ORDERGATE_FILTERS_ORDERS_FRESHNESS": "stale"},
			[]string{`environment: ORDERGATE_FILTERS_ORDERS_FRESHNESS: "stale" is not one of {window: 500ms}, none`}},
		{"freshness without a unit", with("", ""), env{"ORDERGATE_FILTERS_ORDERS_FRESHNESS": "window: 200"},
			[]string{`environment: ORDERGATE_FILTERS_ORDERS_FRESHNESS: window: "200" has no unit: write it as a duration such as 30s or 100ms`}},
		{"freshness out of range", with("filters", "{orders: {freshness: {window: 1s}}}"), env{"ORDERGATE_FILTERS_ORDERS_FRESHNESS": "window: 2m"},
			[]string{`environment: ORDERGATE_FILTERS_ORDERS_FRESHNESS.window: 2m is out of range: 100ms to 10s are allowed`}},
		{"neither true nor false", with("", ""), env{"ORDERGATE_FILTERS_ORDERS_SHARE_LOAD": "yes"},
			[]string{`environment: ORDERGATE_FILTERS_ORDERS_SHARE_LOAD: "yes" is not true or false`}},
		{"not UTF-8", with("", ""), env{"ORDERGATE_REDIS_MEMBER": "a\xff"},
			[]string{`environment: ORDERGATE_REDIS_MEMBER: "a\xff" has a character in it that cannot be printed: leave it out`}},
		{"past 32 bits", with("", ""), env{"ORDERGATE_SOURCES_SEED_SERVER_ID": "4294967296"},
			[]string{`environment: ORDERGATE_SOURCES_SEED_SERVER_ID: "4294967296" is not a whole number such as 1_000_000`}},
		{"with what is wrong in the file", with("redis", "{mode: [], addresses: ['b']}"), env{"ORDERGATE_REDIS_MODE": "double"},
			[]string{
				`environment: ORDERGATE_REDIS_MODE: "double" is not one of single, sentinel, cluster, embedded`,
				"f.yaml:4: redis.mode: is a list: it has to be text",
				`f.yaml:4: redis.addresses[0]: "b" is not host:port or unix:/path`,
			}},
		{"against a default of the file", "filters: {orders: {}}", env{"ORDERGATE_LISTEN_AUTHZ": "127.0.0.1:9192"},
			[]string{`f.yaml:1: listen.proc: "127.0.0.1:9192" is taken by listen.authz: give each listener an address of its own`}},
		{"for two filters", with("filters", "{orders: {}, a-b: {}, a_b: {}}"), env{"ORDERGATE_FILTERS_A_B_CAPACITY": "1"},
			[]string{`environment: ORDERGATE_FILTERS_A_B_CAPACITY: stands for both filters.a-b.capacity and filters.a_b.capacity: rename one of them`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, violations(t, tt.file, tt.env)); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVariablesOfSecretsAreNotAsked keeps passwords out of ORDERGATE_ variables
// and every variable that is asked for within the documented names.
func TestVariablesOfSecretsAreNotAsked(t *testing.T) {
	asked := make(map[string]bool)
	_, err := Parse("f.yaml", []byte(with("", "")), func(name string) string {
		asked[name] = true
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range asked {
		if !strings.HasPrefix(name, "ORDERGATE_") || name == "ORDERGATE_REDIS_PASSWORD" || strings.HasPrefix(name, "ORDERGATE_RULES") {
			t.Errorf("asked for %s", name)
		}
	}
	for _, name := range []string{"ORDERGATE_REDIS_ADDRESSES", "ORDERGATE_LISTEN_ADMIN", "ORDERGATE_FILTERS_ORDERS_CAPACITY", "ORDERGATE_LOCKS_SETTLEMENT_WAIT_UP_TO"} {
		if !asked[name] {
			t.Errorf("did not ask for %s", name)
		}
	}
}

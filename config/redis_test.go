package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRedisIsThereWhenNeeded has, for each reason to need Redis, a file that
// has no other, and what its filter waits for then.
func TestRedisIsThereWhenNeeded(t *testing.T) {
	const aTable = "sources: {s: {kind: mysql, dsn_env: DSN, table: t, id_column: id}}"
	usual := &Redis{Mode: "single", Addresses: []string{"127.0.0.1:6379"}}
	for _, tt := range []struct {
		name, file, freshness string
		want                  *Redis
	}{
		{"not needed", "filters: {f: {}}", "none", nil},
		{"not wanted", "filters: {f: {freshness: none}}", "none", nil},
		{"a table", "filters: {f: {sources: [s]}}\n" + aTable, "none", nil},
		{"asked for", "redis: {}\nfilters: {f: {}}", "window", usual},
		{"a window", "filters: {f: {freshness: window}}", "window", usual},
		{"a window elsewhere", "filters: {f: {}, g: {freshness: window}}", "window", usual},
		{"a longer window", "filters: {f: {freshness: {window: 1s}}}", "window", usual},
		{"a table that is followed", "filters: {f: {sources: [s]}}\n" + strings.Replace(aTable, "id}", "id, follow: poll}", 1), "window", usual},
		{"a reconciliation", "filters: {f: {sources: [s], reconcile: {}}}\n" + aTable, "window", usual},
		{"a load that is shared", "filters: {f: {sources: [s], share_load: true}}\n" + aTable, "window", usual},
		{"a load that is not", "filters: {f: {sources: [s], share_load: false}}\n" + aTable, "none", nil},
		{"a lock", "filters: {f: {}}\nlocks: {l: {}}", "window", usual},
		{"a create", "filters: {f: {}}\nrules: [{" + match + ", create: {filter: f, learn: {response_json: id}}}]", "window", usual},
		{"a create without freshness", "filters: {f: {freshness: none}}\nrules: [{" + match + ", create: {filter: f, learn: {response_json: id}}}]", "none", usual},
		{"embedded", "redis: {mode: embedded}\nfilters: {f: {}}", "window", &Redis{Mode: "embedded"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := mustParse(t, tt.file, env{"DSN": "u:p@tcp(a:1)/d"})
			if diff := cmp.Diff(tt.want, c.Redis); diff != "" {
				t.Errorf("unexpected Redis (-want +got):\n%s", diff)
			}
			if got := c.Filters["f"].Freshness.Mode; got != tt.freshness {
				t.Errorf("freshness is %s, want %s", got, tt.freshness)
			}
		})
	}
}

func TestPassword(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct{ name, redis, password, violation string }{
		{"in a variable", "{password_env: PW}", "from env\n", ""},
		{"in a variable that is not set", "{password_env: NOPE}", "", "redis.password_env: the variable of this name is not set or is empty: put the password there"},
		{"in a file", "{password_file: " + write("plain", "pass word") + "}", "pass word", ""},
		{"in a file with a line break", "{password_file: " + write("unix", "a\n") + "}", "a", ""},
		{"in a file from elsewhere", "{password_file: " + write("dos", "a\r\n") + "}", "a", ""},
		{"in a file with two line breaks", "{password_file: " + write("two", "a\n\n") + "}", "a\n", ""},
		{"in an empty file", "{password_file: " + write("empty", "\n") + "}", "", "redis.password_file: reading the password: the file is empty"},
		{"in a large file", "{password_file: " + write("large", strings.Repeat("a", maxSecret+1)) + "}", "", "redis.password_file: reading the password: the file is larger than 65536 bytes"},
		{"in a directory", "{password_file: " + dir + "}", "", "redis.password_file: reading the password: not a regular file"},
		{"in no file", "{password_file: " + dir + "/none}", "", "redis.password_file: reading the password: no such file or directory"},
		{"in both", "{password_file: a, password_env: PW}", "", "redis.password_env: excludes password_file: give one of the two"},
		{"with a user", "{username: u, password_env: PW}", "from env\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := env{"PW": "from env\n"}
			if tt.violation != "" {
				want := []string{"f.yaml:4: " + tt.violation}
				if diff := cmp.Diff(want, violations(t, with("redis", tt.redis), e)); diff != "" {
					t.Errorf("unexpected violations (-want +got):\n%s", diff)
				}
				return
			}
			if got := mustParse(t, with("redis", tt.redis), e).Redis.Password; string(got) != tt.password {
				t.Errorf("got %q, want %q", got, tt.password)
			}
		})
	}
}

func TestPasswordIsNotPrinted(t *testing.T) {
	r := &Redis{
		Mode: "sentinel", Addresses: []string{"a:1"}, Master: "m", Username: "u", PasswordEnv: "PW", Password: "hunter2",
		SentinelUsername: "s", SentinelPasswordFile: "pw", SentinelPassword: "hunter2", TLS: &TLS{CA: "ca.pem"},
	}
	c := &Config{Redis: r, Log: Log{Decisions: &DecisionLog{Secret: "hunter2"}}}
	var printed []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		printed = append(printed,
			fmt.Sprintf(verb, r), fmt.Sprintf(verb, *r), fmt.Sprintf(verb, c), fmt.Sprintf(verb, *c), fmt.Sprintf(verb, []Redis{*r}))
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("loaded", "pointer", r, "value", *r, "config", c)
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	printed = append(printed, log.String(), string(encoded))
	hex := fmt.Sprintf("%x", "hunter2")
	for _, text := range printed {
		if strings.Contains(text, "hunter2") || strings.Contains(text, hex) {
			t.Errorf("printed as %s", text)
		}
	}
	if got, want := fmt.Sprintf("%+v", *r), "{Mode:sentinel Addresses:[a:1] Master:m Database:0 Username:u PasswordFile: PasswordEnv:PW "+
		"SentinelUsername:s SentinelPasswordFile:pw SentinelPasswordEnv: Member: TLS:{CA:ca.pem Cert: Key: ServerName:} "+
		"Password:(hidden) SentinelPassword:(hidden)}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

package command

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// The parts of a file, each good and bad. The variables that the bad ones name are missing.
var (
	goodPart = map[string]string{
		"listen": "listen: {admin: 'unix:/nowhere/a'}\n", "redis": "redis: {addresses: [REDIS]}\n", "locks": "locks: {settlement: {}}\n",
		"filters": "filters: {orders: {}}\n", "sources": "sources: {db: {kind: csv, path: x}}\n",
		"rules": "rules: [{name: a, match: {methods: [POST], path: '/o/{id}'}, id: {path: id}, settle: {lock: settlement}}]\n",
	}
	badPart = map[string]string{
		"listen": "listen: {admin: 'unix:/nowhere/a', token_env: NO_TOKEN}\n", "redis": "redis: {addresses: [REDIS], password_env: NO_PASSWORD}\n",
		"locks": "locks: {settlement: {lease: 1}}\n", "filters": "filters: {orders: {secret_env: NO_SECRET, capacity: 0}}\n",
		"sources": "sources: {db: {kind: mysql, dsn_env: NO_DSN, table: t, id_column: id}}\n",
		"rules":   "rules: [{name: a, match: {methods: [POST], path: '/o/{id}'}, id: {path: no}, settle: {lock: settlement}}]\n",
	}
)

// TestPartlyBadFile has each command do with a file of which only those parts are good that
// it uses, and refuse one in which one of those is bad.
func TestPartlyBadFile(t *testing.T) {
	addr := bedtest.New(t).Redis().Addr()
	for _, tt := range []struct {
		args, uses, want string // part of its output
		code             int
	}{
		{"locks list", "redis locks", "no lock is held\n", exitDone},
		{"locks show order:lock:1", "redis locks", "free", exitDone},
		{"latch show loaders:7", "redis rules", "loaders:7: open", exitDone},
		{"explain POST_/o/7", "locks rules", "order:lock:7", exitDone},
		{"explain --live POST_/o/7", "redis locks rules", "order:lock:7: free", exitDone},
		{"filter info orders", "listen", "no such file", exitFailed}, // it has come to ask
		{"filter contains orders 7", "listen", "no such file", exitFailed},
		{"filter snapshot orders", "listen", "filters.orders in", exitUsage},
		{"load --filter orders", "listen", "no such file", exitFailed},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := strings.Fields(tt.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "_", " ")
			}
			run := func(bad func(part string) bool) (code int, output string) {
				var text strings.Builder
				for part := range goodPart {
					if bad(part) {
						text.WriteString(badPart[part])
					} else {
						text.WriteString(goodPart[part])
					}
				}
				file := writeConfig(t, strings.ReplaceAll(text.String(), "REDIS", addr))
				code, stdout, stderr := commandWith(t, os.Stdin, append(args, "--config", file)...)
				return code, stdout + stderr
			}
			uses := func(part string) bool { return strings.Contains(tt.uses, part) }
			code, output := run(func(part string) bool { return !uses(part) })
			if code != tt.code || !strings.Contains(output, tt.want) || !strings.Contains(output, "violations that do not concern this command: ") {
				t.Errorf("with bad parts that it does not use: exit code %d\n%s", code, output)
			}
			for part := range strings.FieldsSeq(tt.uses) {
				if code, output := run(func(p string) bool { return p == part }); code != exitUsage || !strings.Contains(output, "ordergate.yaml:") {
					t.Errorf("with bad %s: exit code %d\n%s", part, code, output)
				}
			}
		})
	}
}

// TestUnknownVariables warns of variables that stand for no key.
func TestUnknownVariables(t *testing.T) {
	t.Setenv("ORDERGATE_REDIS_ADRESSES", "127.0.0.1:1")
	file := writeConfig(t, serving)
	want := "environment: ORDERGATE_REDIS_ADRESSES: is ignored: it stands for no key of the file, did you mean ORDERGATE_REDIS_ADDRESSES?\n"
	if code, stdout, stderr := command(t.Context(), "check", "--config", file); code != exitDone || stdout != "" || stderr != want {
		t.Errorf("check: exit code %d, %q, %q", code, stdout, stderr)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if code, _, stderr := command(ctx, "serve", "--config", file); code != exitDone || !strings.Contains(stderr, `level=WARN msg="a variable is ignored: `) {
		t.Errorf("serve: exit code %d, %s", code, stderr)
	}
}

// TestLoadText has the time of the reading apart from the wait before it.
func TestLoadText(t *testing.T) {
	for _, tt := range []struct {
		waited time.Duration
		want   string
	}{
		{44 * time.Second, "filter orders: 100 IDs read in 500ms, after a wait of 44s for abandoned creates; it is ready\n"},
		{0, "filter orders: 100 IDs read in 44.5s; it is ready\n"},
	} {
		var out strings.Builder
		r := &admin.LoadReport{Filter: "orders", IDs: 100, Took: admin.Seconds(44500 * time.Millisecond), Waited: admin.Seconds(tt.waited), State: "ready"}
		bedtest.Check(t, printLoad(r, &environment{stdout: &out}))
		if out.String() != tt.want {
			t.Errorf("%q, want %q", out.String(), tt.want)
		}
	}
}

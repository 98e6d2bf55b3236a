package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// parted is a configuration whose orders belong to tenants.
const parted = `
listen: {authz: 127.0.0.1:0, proc: 127.0.0.1:0, admin: "%s"}
redis: {%s}
filters: {tenants: {capacity: 1000, parts: [tenant], sources: [seed]}}
sources: {seed: {kind: csv, path: %s}}
locks:
  settlement: {key: "order:lock:{tenant}:{id}"}
  other: {key: "other:lock:{id}"}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id}
    parts: &tenant {tenant: {header: x-tenant, format: pattern, pattern: "[a-z0-9-]{1,32}"}}
    lookup: {filter: tenants}
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    parts: *tenant
    lookup: {filter: tenants}
    settle: {lock: settlement}
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true}
    parts: {tenant: {query: tenant, format: uuid}}
    settle: {lock: settlement}
`

func TestExplainParts(t *testing.T) {
	file := writeConfig(t, fmt.Sprintf(parted, "127.0.0.1:0", nowhere, "ids.csv"))
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"settle", []string{"POST /orders/42/settle", "-H", "X-Tenant: acme"}, `
found        42 in path segment {id}
found        acme in header x-tenant, for the part tenant
order ID     acme/42
lock key     order:lock:acme:42
verdict      decided at run time, one of:`},
		{"canonical", []string{"POST /batch?tenant=5B6EF3C2-1111-4222-8333-444455556666", "-H", jsonType, "-d", `{"ids":[2,1]}`}, `
order ID     5b6ef3c2-1111-4222-8333-444455556666/1, 5b6ef3c2-1111-4222-8333-444455556666/2
lock key     order:lock:5b6ef3c2-1111-4222-8333-444455556666:1
lock key     order:lock:5b6ef3c2-1111-4222-8333-444455556666:2`},
		{"missing", []string{"GET /orders/42"}, `
found        42 in path segment {id}
verdict      invalid
status       400
reason       missing_part: the request lacks a part of the order's ID: tenant: looked for in header x-tenant`},
		{"malformed", []string{"GET /orders/42", "-H", "x-tenant: acme corp"}, `
verdict      invalid
status       400
reason       malformed_part: a part of the order's ID is malformed
header       acme corp
byte             ^ 0x20 ' ', offset 4`},
		{"of another form", []string{"GET /orders/42", "-H", "x-tenant: Acme"}, `
reason       malformed_part: a part of the order's ID is malformed
header       Acme
piece        ^ Acme, offset 0`},
		{"twice", []string{"GET /orders/42", "-H", "x-tenant: acme", "-H", "x-tenant: bolt"}, `
verdict      ambiguous
status       400
reason       repeated_part: a part of the order's ID is given more than once
header       bolt
piece        ^ bolt, offset 0`},
		{"alike", []string{"GET /orders/42", "-H", "x-tenant: acme", "-H", "x_tenant: bolt"}, "reason       header_alias: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, stderr := command(t.Context(), append([]string{"explain", "--config", file}, tt.args...)...)
			if code != exitDone || !strings.Contains(out, strings.TrimPrefix(tt.want, "\n")) {
				t.Errorf("exit code %d, printed\n%s%s\nwant\n%s", code, out, stderr, tt.want)
			}
		})
	}
	e, _ := explainJSON(t, strings.NewReader(""), "--config", file, "GET /nowhere/42", "-H", "x-tenant: acme")
	if e.RawID != nil {
		t.Errorf("raw ID %q of no order", *e.RawID)
	}
	e, _ = explainJSON(t, strings.NewReader(""), "--config", file, "POST /batch", "-H", "x-tenant: acme")
	if e.RawID != nil {
		t.Errorf("raw ID %q of a part", *e.RawID)
	}
}

// TestPartsByHand looks at locks and entries of orders with parts, and adds some.
func TestPartsByHand(t *testing.T) {
	addr := bedtest.New(t).Redis().Addr()
	seed := filepath.Join(t.TempDir(), "ids.csv")
	bedtest.Check(t, os.WriteFile(seed, []byte("acme/1\nbolt/1\n"), 0o600))
	dir, err := os.MkdirTemp("", "og") // a socket's path has to be short
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := writeConfig(t, fmt.Sprintf(parted, "unix:"+dir+"/a", "addresses: ["+addr+"]", seed))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if code, _, log := command(ctx, "serve", "--config", file, "--drain-delay", "0"); code != exitDone {
			t.Errorf("serve ended with %d: %s", code, log)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	run := func(args ...string) string {
		code, out, stderr := command(t.Context(), append(args, "--config", file)...)
		return fmt.Sprintf("%d %s%s", code, out, stderr)
	}
	bedtest.Eventually(t, "the filter is loaded", func() bool { return run("filter", "contains", "tenants", "acme/1") == "0 maybe\n" })

	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	party{t, client}.hold(redislock.Options{}, "order:lock:acme:42", "settle 7")
	csv := filepath.Join(t.TempDir(), "more.csv")
	bedtest.Check(t, os.WriteFile(csv, []byte("acme/3\nbolt/4\n"), 0o600))
	for _, tt := range []struct {
		args []string
		want string // is in the exit code and the output
	}{
		{[]string{"filter", "contains", "tenants", "bolt/1"}, "0 maybe\n"},
		{[]string{"filter", "contains", "tenants", "acme/2"}, "0 absent\n"},
		{[]string{"filter", "contains", "tenants", "1"}, "2 filter contains: the IDs of filter tenants have parts: want TENANT/ORDER-ID\n"},
		{[]string{"filter", "add", "tenants", "acme/2"}, "0 added 1\n"},
		{[]string{"filter", "contains", "tenants", "acme/2"}, "0 maybe\n"},
		{[]string{"filter", "contains", "tenants", "bolt/2"}, "0 absent\n"},
		{[]string{"filter", "add", "tenants", "2", "acme/02", "/2", "acme/", "acme/bolt/2", "Acme/2"}, `the first is "2"`},
		{[]string{"load", "--filter", "tenants", "--csv", csv}, "2 IDs read"},
		{[]string{"filter", "contains", "tenants", "bolt/4"}, "0 maybe\n"},
		{[]string{"filter", "contains", "tenants", "acme/4"}, "0 absent\n"},
		{[]string{"locks", "show", "--lock", "settlement", "acme/42"}, "order:lock:acme:42"},
		{[]string{"locks", "show", "order:lock:acme:42"}, "settlement"},
		{[]string{"locks", "show", "--lock", "settlement", "order:lock:acme:42"}, "settle"},
		{[]string{"locks", "show", "--lock", "settlement", "42"}, `2 locks: "42" is no order ID of lock settlement: want TENANT/ORDER-ID (TENANT: `},
		{[]string{"locks", "show", "--lock", "settlement", "bolt/42"}, "free"},
		{[]string{"locks", "list"}, "order:lock:acme:42"},
		{[]string{"locks", "list", "--lock", "settlement"}, "order:lock:acme:42"},
		{[]string{"locks", "release", "--lock", "settlement", "--yes", "acme/42"}, "released"},
		{[]string{"locks", "list"}, "0 "},
	} {
		if got := run(tt.args...); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", strings.Join(tt.args, " "), got, tt.want)
		}
	}
}

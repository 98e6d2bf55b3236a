package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// keyed has rules with a lock of keys, also of one that only observes.
const keyed = `
rules:
  - name: payment
    match: {methods: [POST], path: /payments}
    once: {by: idempotency-key}
  - name: note
    match: {methods: [POST], path: /notes}
    once: {by: [{header: x-user}, body], for: 3s}
    mode: observe
`

// TestLocksOfKeys looks at the lock of a request's key, and releases it. No other lock is in the
// file.
func TestLocksOfKeys(t *testing.T) {
	t.Parallel()
	section := fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr())
	file := writeConfig(t, "redis: "+section+keyed)
	p := party{t, connected(t, section)}
	const request = "POST /payments"
	explain := func(args ...string) string {
		_, stdout, stderr := command(t.Context(), append([]string{"explain", request, "-H", "idempotency-key: k", "--config", file}, args...)...)
		return stdout + stderr
	}
	_, after, found := strings.Cut(explain(), "\nonce key     ")
	key, _, _ := strings.Cut(after, "\n")
	if !found || !strings.HasPrefix(key, "ordergate:once:payment:") {
		t.Fatalf("explain shows the key %q", key)
	}
	if got := explain("--live"); !strings.Contains(got, "\nlock now     "+key+": free\n") {
		t.Errorf("a free lock:\n%s", got)
	}
	keys := redislock.Options{Hold: time.Hour, FencesUnused: true, FenceLife: 30 * time.Second}
	lease := p.hold(keys, key, "payment 6f1c")
	bedtest.Check(t, lease.Hold(t.Context(), "outcome unknown: client_left"))
	p.play("hset ordergate:once:note:k:observe " + javaOwner + " 1")

	row := "KEY KIND HOLDER AGE FENCE WAITING ENDS IN REQUEST\n" + key + " exclusive OWNER SPAN FENCE 0 SPAN payment 6f1c; left held: outcome unknown: client_left\n"
	eventually(t, row, "locks", "list", "--config", file)
	eventually(t, row, "locks", "list", "--lock", "once:payment", "--config", file)
	eventually(t, "no lock is held\n", "locks", "list", "--lock", "once:note", "--config", file)
	if got := explain("--live"); !strings.Contains(got, "\nlock now     "+key+": held by ") {
		t.Errorf("a held lock:\n%s", got)
	}
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"show " + key, exitDone, "lock         once:payment (exclusive, format redisson)\n"},
		{"show --lock once:payment " + key, exitDone, "left held  its call is over; outcome unknown: client_left\n"},
		{"show --lock once:payment k", exitUsage, `locks: "k" is no key of lock once:payment: give one that locks list shows, which has a hash`},
		{"show --lock once:other k", exitUsage, `locks: --lock "once:other" is not in ` + file + ", which has once:note, once:payment\n"},
		{"release --yes " + key, exitDone, "released; waiters notified: 0\n"},
		{"release --yes " + key, exitFailed, "is not held\n"},
		{"audit", exitDone, key + " (once:payment)"},
	} {
		code, stdout, stderr := command(t.Context(), slices.Concat([]string{"locks", "--config", file}, strings.Fields(tt.args))...)
		if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("locks %s: exit code %d, %s%s", tt.args, code, stdout, stderr)
		}
	}
	if got := explain("--live"); !strings.Contains(got, "\nlock now     "+key+": free\n") {
		t.Errorf("after the release:\n%s", got)
	}
}

// TestLocksOfIDs reads the ID of an order as the rules of its lock do.
func TestLocksOfIDs(t *testing.T) {
	t.Parallel()
	const upper, lower = "6F1C2B3A-9A01-4C2D-8E3F-0123456789AB", "6f1c2b3a-9a01-4c2d-8e3f-0123456789ab"
	section := fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr())
	file := writeConfig(t, "redis: "+section+`
locks:
  settlement: {}
  merchants: {kind: semaphore, permits: 2, key: "merchant:{id}"}
  unused: {key: "unused:{id}"}
rules:
  - name: settle
    match: {methods: [POST], path: "/orders/{id}"}
    id: {path: id, format: uuid}
    settle: {lock: settlement, limit: {lock: merchants, id: {header: x-merchant, format: uuid}}}
  - name: short
    match: {methods: [POST], path: "/short/{id}"}
    id: {path: id, max_length: 4}
    settle: {lock: settlement}
`)
	bare := writeConfig(t, "redis: "+section+`
locks: {bare: {key: "{id}"}}
rules: [{name: bare, match: {methods: [POST], path: "/bare/{id}"}, id: {path: id, format: uuid}, settle: {lock: bare}}]
`)
	tenants := writeConfig(t, "redis: "+section+`
locks: {tenants: {key: "{tenant}:settling:{id}"}}
rules:
  - name: tenants
    match: {methods: [POST], path: "/tenants/{id}"}
    id: {path: id, format: uuid}
    parts: {tenant: {header: x-tenant, format: pattern, pattern: "[a-z]+", max_length: 8}}
    settle: {lock: tenants}
`)
	for _, tt := range []struct {
		lock, arg, want string // the key, or the error
	}{
		{"settlement", upper, "order:lock:" + lower},
		{"settlement", "42", "order:lock:42"},
		{"settlement", "order:lock:" + upper, "order:lock:" + upper}, // a key is one, whoever has made it
		{"settlement", "042", `"042" is no order ID of lock settlement: want ORDER-ID (ORDER-ID: a UUID), or ORDER-ID (ORDER-ID: 1 to 4 digits without a leading zero)`},
		{"settlement", "nonsense", `"nonsense" is no order ID of lock settlement: want `},
		{"merchants", upper, "merchant:" + lower},
		{"merchants", "7", `"7" is no order ID of lock merchants: want ORDER-ID (ORDER-ID: a UUID)`},
		{"bare", upper, lower},
		{"tenants", "acme/" + upper, "acme:settling:" + lower},
		{"tenants", "acme:settling:" + lower, "acme:settling:" + lower},
		{"tenants", "Acme/" + lower, `is no order ID of lock tenants: want TENANT/ORDER-ID (TENANT: 1 to 8 bytes of the pattern [a-z]+; ORDER-ID: a UUID)`},
		{"tenants", lower, `is no order ID of lock tenants: want TENANT/ORDER-ID (`},
		{"unused", "any", "unused:any"},
	} {
		config := cmp.Or(map[string]string{"bare": bare, "tenants": tenants}[tt.lock], file)
		code, stdout, stderr := command(t.Context(), "locks", "show", "--lock", tt.lock, tt.arg, "--config", config)
		isKey := code == exitDone && stderr == "" && strings.Contains(stdout, "\nkey          "+tt.want+"\n")
		if isError := code == exitUsage && stdout == "" && strings.Contains(stderr, tt.want) && strings.Count(stderr, "\n") == 1; !isKey && !isError {
			t.Errorf("locks show --lock %s %s: exit code %d, %s%s", tt.lock, tt.arg, code, stdout, stderr)
		}
	}
	p := party{t, connected(t, section)}
	p.hold(redislock.Options{}, "order:lock:"+lower, "settle 1")
	if code, stdout, stderr := command(t.Context(), "locks", "release", "--yes", "--lock", "settlement", upper, "--config", file); code != exitDone {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

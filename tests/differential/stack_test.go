package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// newStack starts a Redis, an ordergate and an Envoy in front of a backend, and
// returns where clients go. The filter knows the first n decoys.
func newStack(t *testing.T, bed *bedtest.Bed, backend string, front bool, n int) (addr string) {
	t.Helper()
	return newFront(t, bed, backend, front, n, rules(front)).addr
}

// front is what stands before a backend.
type front struct {
	addr  string // where clients go
	admin string // of ordergate
}

// newFront is newStack for other rules.
func newFront(t *testing.T, bed *bedtest.Bed, backend string, isFront bool, n int, rules string) *front {
	t.Helper()
	return frontOf(t, bed, backend, isFront, gateConfig(t, bed, n, rules))
}

// frontOf is newFront for another configuration.
func frontOf(t *testing.T, bed *bedtest.Bed, backend string, isFront bool, config string) *front {
	t.Helper()
	// Without the race detector, which sees as much in the other end-to-end tests: this is
	// about how single requests are read.
	g := bed.Gate(bed.Build("./cmd/sidecar", false), config)
	envoy, err := bed.EnvoyExample(bed.GateAddr(g, "authz"), bed.GateAddr(g, "proc"), backend)
	bedtest.Check(t, err)
	changes := envoyChanges(isFront)
	envoy = withoutEarlyRemoval(envoy)
	// Lookups go on when the verdict is late, which on a busy machine it may
	// be: here that would be a request that nobody looked at.
	changes = append(changes, change{"                timeout: 0.5s\n", "                timeout: 15s\n"})
	if !isFront {
		// Lookups whose ID is in the body need it there too. As bytes: Envoy would
		// change what is no UTF-8.
		changes = append(changes, change{"              failure_mode_allow: true\n", "              failure_mode_allow: true\n" +
			fmt.Sprintf("              with_request_body: { max_request_bytes: %d, allow_partial_message: false, pack_as_bytes: true }\n", shown)})
	}
	return &front{bed.ListenerAddr(bed.Envoy(changed(t, envoy, changes)), "orders"), bed.GateAddr(g, "admin")}
}

// shown bounds the bodies that ext_authz sees of lookups, in bytes.
const shown = 64 << 10

// newModule is newFront with ordergate inside Envoy.
func newModule(t *testing.T, bed *bedtest.Bed, library, backend string, isFront bool, n int, rules string) (addr string) {
	t.Helper()
	return moduleOf(t, bed, library, backend, isFront, gateConfig(t, bed, n, rules))
}

// moduleOf is newModule for another configuration.
func moduleOf(t *testing.T, bed *bedtest.Bed, library, backend string, isFront bool, config string) (addr string) {
	t.Helper()
	envoy, g := bed.EnvoyWithModule(library, config, func(file string) (string, error) {
		envoy, err := bed.ModuleExample(file, backend)
		if err == nil {
			envoy = changed(t, withoutEarlyRemoval(envoy), envoyChanges(isFront))
		}
		return envoy, err
	})
	bedtest.Check(t, g.WaitReady(t.Context()))
	return bed.ListenerAddr(envoy, "orders")
}

// gateConfig is ordergate's with these rules, and a Redis of its own.
func gateConfig(t *testing.T, bed *bedtest.Bed, n int, rules string) string {
	t.Helper()
	head, _, found := strings.Cut(bed.GateExample(bed.Redis().Addr(), idFile(t, n)), "\nrules:\n")
	if !found {
		t.Fatal("the example of ordergate's configuration has no rules to replace")
	}
	return head + "\nrules:\n" + rules
}

// withoutEarlyRemoval has Envoy itself leave ordergate's headers of a client alone: what
// removes them is the filters.
func withoutEarlyRemoval(envoy string) string {
	return strings.ReplaceAll(envoy, "- remove: x-ordergate-", "- remove: x-elsewhere-")
}

// change is one of an example.
type change struct{ from, to string }

// envoyChanges are those of either example of Envoy's configuration.
func envoyChanges(isFront bool) []change {
	// How long a connection stays half open on which no request could be read:
	// a second each would be most of the test.
	changes := []change{{"          stat_prefix: orders\n", "          stat_prefix: orders\n          delayed_close_timeout: 0.02s\n"}}
	if isFront {
		changes = append(changes,
			change{"          normalize_path: true\n", "          normalize_path: false\n"},
			change{"          merge_slashes: true\n", "          merge_slashes: false\n"},
			change{"path_with_escaped_slashes_action: REJECT_REQUEST", "path_with_escaped_slashes_action: KEEP_UNCHANGED"},
			change{"headers_with_underscores_action: REJECT_REQUEST", "headers_with_underscores_action: ALLOW"})
	}
	return changes
}

// changed makes the changes.
func changed(t *testing.T, example string, changes []change) string {
	t.Helper()
	for _, change := range changes {
		if strings.Count(example, change.from) != 1 {
			t.Fatalf("the example does not have %q once", change.from)
		}
		example = strings.Replace(example, change.from, change.to, 1)
	}
	return example
}

// rules is what ordergate is told of the backends: every route, and where it has
// its ID.
func rules(front bool) string {
	var b strings.Builder
	rule := func(s source, settle bool, methods, path, id string) {
		if !isServed(s, settle, front) {
			return
		}
		action := "lookup: {filter: orders}"
		name := "order"
		if settle {
			action, name = "settle: {lock: settlement}", "settle"
		}
		match := fmt.Sprintf("methods: [%s], path: %q", methods, path)
		if !front { // these serve any method, so all but the named ones are refused
			match += ", other_methods: refuse"
		}
		if s == inScript {
			match += ", query: {action: " + (&draft{settle: settle}).verb() + "}"
		}
		fmt.Fprintf(&b, "  - name: %s-%s\n    match: {%s}\n    id: {%s, format: digits}\n    %s\n", s, name, match, id, action)
	}
	for _, s := range sourcesOf(front) {
		id := map[source]string{
			inPath: "path: id", inQuery: "query: orderId", inForm: "form: orderId",
			inJSON: "json: orderId, max: int32", inHeader: "header: x-order-id", inCookie: "cookie: orderId",
			inSnake: "query: order_id", inScript: "query: id", inFile: "query: id",
		}[s]
		lookup := "GET, HEAD"
		if s == inForm || s == inJSON {
			lookup = "POST"
		}
		if s == inScript {
			rule(s, false, lookup, "/index.php", id)
			rule(s, true, "POST", "/index.php", id)
			continue
		}
		if s == inFile {
			rule(s, false, lookup, (&draft{}).script(), id)
			rule(s, true, "POST", (&draft{settle: true}).script(), id)
			continue
		}
		if s == inPath {
			rule(s, false, lookup, "/orders/{id}", id)
			rule(s, true, "POST", "/orders/{id}/settle", id)
			continue
		}
		rule(s, false, lookup, "/"+string(s)+"/order", id)
		rule(s, true, "POST", "/"+string(s)+"/settle", id)
	}
	return b.String()
}

// idFile writes the first n decoys, one a line, behind a header.
func idFile(t *testing.T, n int) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintln(&text, "id")
	for i := range n {
		fmt.Fprintln(&text, i*apart+decoyEnd)
	}
	path := filepath.Join(t.TempDir(), "orders.csv")
	bedtest.Check(t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

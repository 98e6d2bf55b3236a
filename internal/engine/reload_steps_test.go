package engine

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestReloadToAnotherLock has reloads by which requests come under another rule
// that was there before, and reloads of several steps: while a settlement runs, none gives
// its order to another one.
func TestReloadToAnotherLock(t *testing.T) {
	t.Parallel()
	const (
		settle  = `{name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: a}}`
		observe = `{name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: a}, mode: observe}`
		other   = `{name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: b}}`
		moved   = `{name: settle, match: {methods: [POST], path: "/v1/{id}/settle"}, id: {path: id}, settle: {lock: a}}`
		verbs   = `{name: verbs, match: {methods: [POST], path: "/orders/{id}/{verb}"}, id: {path: id}, settle: {lock: b}}`
		shops   = `{name: settle, match: {methods: [POST], path: "/{shop}/{id}/settle"}, id: {path: id}, settle: {lock: a}}`
		refund  = `{name: refund, match: {methods: [POST], path: "/orders/{id}/refund"}, id: {path: id}, settle: {lock: b}}`
		more    = `{name: more, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id}, settle: {lock: b}}`
		renamed = `{name: refund, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: b}}`
	)
	for _, tt := range []struct {
		name  string
		steps [][]string // the rules of each version
		fails bool       // the last step takes a restart
	}{
		{"a rule goes, and one behind it takes its requests", [][]string{{settle, verbs}, {verbs}}, true},
		{"its path changes", [][]string{{settle, verbs}, {moved, verbs}}, true},
		{"one behind it comes first", [][]string{{shops, verbs}, {verbs, shops}}, true},
		{"another takes its path", [][]string{{settle, refund}, {renamed}}, true},
		{"it goes, and comes back with another lock", [][]string{{settle}, {more}, {other}}, true},
		{"it is observed, and enforced with another lock", [][]string{{settle}, {observe}, {other}}, true},
		{"it goes, and another one comes", [][]string{{settle, refund}, {refund}, {more, refund}, {renamed}}, true},
		{"nothing of theirs changes", [][]string{{settle, verbs}, {settle, verbs, more}, {more, settle, verbs}}, false},
		{"the one behind goes", [][]string{{settle, verbs}, {settle}}, false},
		{"it goes, and comes back", [][]string{{settle, refund}, {refund}, {refund, settle}}, false},
		{"it is observed for a while", [][]string{{settle, verbs}, {observe, refund}, {settle, refund}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var versions []*config.Config
			for _, rules := range tt.steps {
				text := "redis: {mode: embedded}\nlocks: {a: {key: \"a:{id}\"}, b: {key: \"b:{id}\"}}\nrules:\n"
				for _, rule := range rules {
					text += "  - " + rule + "\n"
				}
				c, err := config.Parse("a.yaml", []byte(text), func(string) string { return "" })
				bedtest.Check(t, err)
				versions = append(versions, c)
			}
			m, err := build(t.Context(), versions[0], slog.New(slog.DiscardHandler))
			bedtest.Check(t, err)
			defer m.Close()
			running, step := settlement(t, m.Gate(), "1")
			if step.Do != gate.PassRequest {
				t.Fatalf("step %+v", step)
			}
			defer end(t, running)
			for i, c := range versions[1:] {
				_, err := m.apply(t.Context(), c)
				var restart RestartError
				if last := i == len(versions)-2; errors.As(err, &restart) != (last && tt.fails) {
					t.Errorf("step %d: error %v", i+1, err)
				} else if err != nil && !last {
					t.Fatal(err)
				}
			}
			if call := opened(m.Gate(), "1"); call.NeedsLock {
				if step := gatetest.Settle(t.Context(), call); step.Do == gate.PassRequest && len(step.Set) > 0 {
					end(t, call)
					t.Error("two settle one order")
				}
			}
		})
	}
}

package engine

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"

	"github.com/ordergate/ordergate/internal/gate"
)

// TestRequirements has a user of Redis without the right to the keys of conditions, then with it,
// and then without it once more.
func TestRequirements(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis("--user", "gate", "on", ">secret", "~order:*", "~{order:*", "~redisson*", "~open:*", "&*", "+@all")
	const rule = `match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: settlement, require: [{missing: "open:{id}"}, {latch: "loaders:{id}"}]}`
	text := "redis: {addresses: [" + server.Addr() + "], username: gate, password_env: PW}\nlocks: {settlement: {}}\nrules:\n" +
		"  - {name: settle, " + rule + "}\n" +
		"  - {name: observed, mode: observe, " + bedtest.Replace(rule, "/settle", "/observed") + "}\n" +
		`  - {name: always, match: {methods: [POST], path: "/always/{id}"}, id: {path: id}, settle: {lock: settlement, require: [{time: {}}]}}` + "\n"
	c, err := config.Parse("a.yaml", []byte(text), func(name string) string { return map[string]string{"PW": "secret"}[name] })
	bedtest.Check(t, err)
	log := &bedtest.Log{}
	m, err := New(t.Context(), c, "", slog.New(slog.NewTextHandler(log, nil)))
	bedtest.Check(t, err)
	defer m.Close()
	m.requirements.use(m.Gate().Policies(), false)
	find := func(name string) (found health.Condition) {
		for _, c := range m.conditions(t.Context(), false) {
			if c.Name == "conditions of rule "+name {
				found = c
			}
		}
		return found
	}
	if c := find("settle"); c.Ready || c.Reason != "not tested yet" {
		t.Errorf("before the start: %+v", c)
	}
	m.Start()
	permit := func(rules ...any) {
		t.Helper()
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		bedtest.Check(t, client.Do(t.Context(), append([]any{"acl", "setuser", "gate"}, rules...)...).Err())
	}
	const denied = "settlements are refused: condition latch, key loaders:ordergate-probe: NOPERM"
	refused := func() bool { c := find("settle"); return !c.Ready && strings.HasPrefix(c.Reason, denied) }
	bedtest.Eventually(t, "the key is named", refused)
	bedtest.Eventually(t, "an observed rule is ready", func() bool { c := find("observed"); return c.Ready && strings.HasPrefix(c.Reason, denied) })
	if c := find("always"); c.Name != "" {
		t.Errorf("a time has a condition: %+v", c)
	}

	permit("~loaders:*")
	m.requirements.changed <- struct{}{} // instead of the ticker
	bedtest.Eventually(t, "ready", func() bool { return find("settle") == health.Condition{Name: "conditions of rule settle", Ready: true} })

	permit("resetkeys", "~order:*", "~{order:*", "~redisson*", "~open:*")
	if refused() {
		t.Error("refused before anything was checked")
	}
	call, step := settlement(t, m.Gate(), "1")
	if step.Do == gate.PassRequest {
		end(t, call)
		t.Error("a settlement passes unchecked")
	}
	m.requirements.changed <- struct{}{}
	bedtest.Eventually(t, "the key is named once more", refused)
	for _, want := range []string{
		`level=ERROR msg="no settlement can pass: a condition cannot be checked" rule=settle condition=latch key=loaders:ordergate-probe error="NOPERM`,
		`level=INFO msg="the conditions can be checked again" rule=settle`,
		`condition=latch key=loaders:{id}`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s: %s", want, log)
		}
	}
}

package tests

import (
	"regexp"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestOnceReload reloads rules with stored answers. What would hide the answers is refused, and
// other changes keep them.
func TestOnceReload(t *testing.T) {
	t.Parallel()
	p := newPayer(t)
	r := newReloads(t, settings{backend: p.addr(), orders: 10, gate: onceRules})
	settle := func() answer { return r.must("POST", "/orders/1/settle", "") }
	pay := func() answer {
		return r.must("POST", "/payments", "", "idempotency-key", "k", "authorization", "Bearer a")
	}
	for _, verdict := range []string{"", "replayed"} {
		settle().want(t, 200, verdict)
		pay().want(t, 200, verdict)
	}
	for _, tt := range []struct{ from, to, names string }{
		{"once: {keep: 1h, name: commission}", "once: {keep: 1h, name: payout}", "rules.commission-settle.settle.once.name: takes a restart"},
		{"once: {keep: 1h, name: commission}", "once: {keep: 1h}", "rules.commission-settle.settle.once.name: takes a restart"},
		{"name: commission-settle", "name: commission-pay", "rules.commission-pay.name: takes a restart"},
		{"name: payment\n", "name: pay\n", "rules.pay.name: takes a restart"},
		{"scope: [{header: x-tenant}, authorization]", "scope: [authorization]", "rules.payment.once.scope: takes a restart"},
	} {
		r.wantAfter("refused", func() { r.rewrite(r.edited(tt.from, tt.to)) })
		r.wantLogged("reload: ", tt.names)
		settle().want(t, 200, "replayed")
		pay().want(t, 200, "replayed")
		r.wantAfter("unchanged", func() { r.rewrite(r.text) })
	}
	r.wantAfter("applied", func() {
		r.rewrite(r.edited("once: {keep: 1h, name: commission}", "once: {keep: 2h, name: commission, scope: []}"))
	})
	settle().want(t, 409, "duplicate") // nobody is the caller that settled it
	pay().want(t, 200, "replayed")
	p.wantPaid(t, "/orders/1/settle", 1)

	// What is undone while nothing is enforced is undone, also for a batch, or if that is not certain.
	r.wantAfter("applied", func() { r.rewrite(r.text) })
	for _, order := range []string{"2", "3", "4", "5", "6", "7"} {
		r.must("POST", "/orders/"+order+"/settle", "").want(t, 200, "")
	}
	r.wantAfter("applied", func() {
		r.rewrite(regexp.MustCompile(`(?m)^  - name: .*$`).ReplaceAllString(r.text, "$0\n    mode: observe"))
	})
	for _, order := range []string{"6", "7"} { // busy, also for those that only observe
		r.inBackground(t.Context(), "/orders/"+order+"/settle?hang")
		bedtest.Eventually(t, "it runs", func() bool { return p.paid("/orders/"+order+"/settle") == 2 })
	}
	r.must("POST", "/orders/6/undo", "").want(t, 200, "")
	r.must("POST", "/orders/7/undo?status=404", "").want(t, 404, "")
	close(p.release)
	r.must("POST", "/orders/2/undo", "").want(t, 200, "")
	r.must("POST", "/orders/3/undo?status=500", "").want(t, 500, "")
	r.must("POST", "/orders/4/undo?status=404", "").want(t, 404, "")
	r.must("POST", "/orders/2/settle", "").want(t, 200, "")
	p.wantPaid(t, "/orders/2/settle", 2)
	bedtest.Eventually(t, "the undos have ended", func() bool { return len(r.redis.Keys(t.Context(), "order:lock:*").Val()) == 0 })
	r.wantAfter("applied", func() { r.rewrite(r.text) })
	r.must("POST", "/orders/2/settle", "").want(t, 200, "")
	r.must("POST", "/orders/2/settle", "").want(t, 200, "replayed")
	r.must("POST", "/orders/3/settle", "").want(t, 409, "duplicate")
	r.must("POST", "/orders/4/settle", "").want(t, 200, "replayed")
	r.must("POST", "/orders/5/settle", "").want(t, 200, "replayed")
	r.must("POST", "/orders/6/settle", "").want(t, 200, "")
	r.must("POST", "/orders/7/settle", "").want(t, 200, "replayed")
	p.wantPaid(t, "/payments", 1)
}

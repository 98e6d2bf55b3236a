package lockmw

import (
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

// TestUse takes the rules away while a settlement runs: it ends as it began, and the next
// one goes by the new rules.
func TestUse(t *testing.T) {
	b := newBed(t)
	waiting, running := b.open(), b.open()
	b.lock.Grants <- nil
	if r := running.say(settle()); r.GetRequestHeaders() == nil {
		t.Fatalf("not forwarded: %v", r)
	}
	if err := waiting.Send(settle()); err != nil {
		t.Fatal(err)
	}
	b.wantDid("acquire 42, acquire 42")
	empty := gatetest.Gate(t, nil, gatetest.Silent{})
	b.server.Use(empty)

	after := b.open()
	if r := after.say(settle()); len(r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()) != 0 {
		t.Errorf("under no rule any more: %v", r)
	}
	after.wantEnd()
	b.lock.Grants <- gate.ErrBusy
	r, err := waiting.Recv()
	if err != nil || r.GetImmediateResponse().GetStatus().GetCode() != 409 {
		t.Errorf("one that waited got %v, %v", r, err)
	}
	running.say(answered("200", "via_upstream"))
	running.say(bodyPart(true))
	if err := running.CloseSend(); err != nil {
		t.Fatal(err)
	}
	running.wantEnd()
	b.wantDid("acquire 42, acquire 42, release")
}

package tests

import (
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestDoubtThatRedisLost: without a live source, a doubt that wants somebody is there for
// an ordergate that starts after Redis has lost the entry, as long as another lives that
// knew of it.
func TestDoubtThatRedisLost(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 100)
	k.start("")
	k.want("absent", "3000001")
	must(t, k.redis.Save(t.Context()).Err())
	recordDoubt(t, k.log, changelog.Doubt{Kind: changelog.Lost, Reason: "no ID in the answer", Orders: true, Since: time.Now()})
	k.mustSay("level=ERROR", "nothing counts as absent until the sources have every order")
	must(t, k.server.Restart(t.Context())) // with what it had saved
	other := *k
	other.member, other.file = "there", k.file+".other"
	other.start("")
	bedtest.Eventually(t, "the other one has the doubt", func() bool {
		if got := other.ask("3000001"); got == "absent" {
			t.Fatal("an order whose ID nobody could read is absent")
		}
		return other.said("level=ERROR", "nothing counts as absent until the sources have every order")
	})
}

// TestClearedDoubtIsReadAgain has a log lose an entry that began with a doubt, which
// somebody has cleared since.
func TestClearedDoubtIsReadAgain(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 100)
	k.start("")
	k.want("absent", "3000001")
	recordDoubt(t, k.log, changelog.Doubt{Kind: changelog.Lost, Reason: "no ID in the answer", Orders: true, Since: time.Now()})
	k.mustSay("level=ERROR", "nothing counts as absent until the sources have every order")
	k.load()
	k.want("absent", "3000001")
	must(t, k.redis.Save(t.Context()).Err())
	k.create("3000002")
	k.want("maybe", "3000002")
	must(t, k.server.Restart(t.Context())) // with what it had saved
	k.mustSay("orders that the change log had lost are in it again")
	bedtest.Eventually(t, "orders are absent again", func() bool { return k.ask("3000001") == "absent" })
}

// TestStartBesideARestart starts an ordergate when Redis has just come back with less, and
// nobody has said yet what it lacks: the one who knows is held up, and Redis has forgotten
// that it is there.
func TestStartBesideARestart(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 100)
	first := *k
	first.member, first.file = "first", k.file+".first"
	first.start("")
	first.want("absent", "3000001")
	must(t, first.gate.Stop())
	before := takeDump(t, k.server, k.redis)
	k.start("")
	k.create("3000001")
	k.want("maybe", "3000001")
	must(t, k.gate.Pause())
	before.restore(t)
	other := *k
	other.member, other.file = "there", k.file+".other"
	other.start("")
	if got := other.ask("3000001"); got == "absent" {
		t.Error("an order that another ordergate knows is absent")
	}
	must(t, k.gate.Resume())
	bedtest.Eventually(t, "the order is known", func() bool { return other.ask("3000001") == "maybe" })
	bedtest.Eventually(t, "orders are absent again", func() bool { return other.ask("3000002") == "absent" })
}

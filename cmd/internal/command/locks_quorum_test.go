package command

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLocksQuorum looks at a lock on three servers, of which one goes away.
func TestLocksQuorum(t *testing.T) {
	bed := bedtest.New(t)
	var servers []*testbed.Redis
	var clients []redis.UniversalClient
	var addrs []string
	for range 3 {
		server := bed.Redis()
		servers, addrs = append(servers, server), append(addrs, server.Addr())
		clients = append(clients, connected(t, fmt.Sprintf("{addresses: [%s]}", server.Addr())))
	}
	file := writeConfig(t, "locks:\n  payout: {kind: quorum, key: 'payout:{id}', quorum: {addresses: "+list(addrs...)+"}}\n")
	locker, err := redislock.NewQuorum(clients, redislock.Options{Hold: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	var leases []*redislock.Lease
	for n := range 2 {
		lease, err := locker.Acquire(t.Context(), fmt.Sprintf("payout:%d", n+1), redislock.Request(fmt.Sprintf("settle %d", n+1)))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	if err := leases[1].Hold(t.Context(), "outcome unknown"); err != nil {
		t.Fatal(err)
	}
	// The votes for one are split, and the first server has another opinion.
	for i, c := range clients {
		party{t, c}.play(fmt.Sprintf("hset payout:3 %s 1\n", []string{"a:1", "b:1", "b:1"}[i]))
	}
	eventually(t, `
KEY KIND HOLDER AGE FENCE WAITING ENDS IN REQUEST
payout:1 quorum 3/3 OWNER SPAN FENCE 0 SPAN settle 1
payout:2 quorum 3/3 OWNER SPAN FENCE 0 SPAN settle 2; left held: outcome unknown
payout:3 quorum 2/3 b:1 - - 0 never -
`, "locks", "list", "--config", file)

	servers[2].Kill()
	code, stdout, stderr := command(t.Context(), "locks", "list", "--config", file)
	if code != exitDone || !strings.Contains(plain(stdout), "payout:1 quorum 2/3 OWNER") ||
		strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, " on "+addrs[2]+"\n") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = command(t.Context(), "locks", "show", "payout:3", "--config", file)
	for _, want := range []string{
		"quorum not known: 1 of 3 servers do not answer\n",
		"server " + addrs[0] + "\nstate held\nholder a:1\n",
		"server " + addrs[2] + "\nstate not known: ",
	} {
		if code != exitDone || !strings.Contains(plain(stdout), want) {
			t.Errorf("exit code %d, no %q in %s%s", code, want, stdout, stderr)
		}
	}
	code, stdout, stderr = command(t.Context(), "locks", "release", "--yes", "payout:2", "--config", file)
	if code != exitDone || !strings.HasSuffix(stdout, "released on 2 of 3 servers; waiters notified: 0\n") || !strings.Contains(stderr, "kind=quorum") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}

	servers[1].Kill()
	code, _, stderr = command(t.Context(), "locks", "release", "--yes", "payout:1", "--config", file)
	if code != exitFailed || !strings.Contains(stderr, "only 1 of 3 servers answer") {
		t.Errorf("with one server: exit code %d, %s", code, stderr)
	}
	servers[0].Kill()
	if code, _, stderr = command(t.Context(), "locks", "list", "--config", file); code != exitFailed || strings.Count(stderr, "\n") != 1 {
		t.Errorf("without servers: exit code %d, %s", code, stderr)
	}
}

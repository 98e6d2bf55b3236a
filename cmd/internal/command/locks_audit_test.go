package command

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLocksAudit shows who released what, on each kind of Redis.
func TestLocksAudit(t *testing.T) {
	for name, start := range map[string]func(*bedtest.Bed) string{
		"single": func(bed *bedtest.Bed) string { return fmt.Sprintf("{addresses: [%s]}", bed.Redis().Addr()) },
		"cluster": func(bed *bedtest.Bed) string {
			return "{mode: cluster, addresses: " + list(bed.Cluster().Addrs()...) + "}"
		},
	} {
		t.Run(name, func(t *testing.T) {
			section := start(bedtest.New(t))
			file, client := writeConfig(t, "redis: "+section+everyLock), connected(t, section)
			if _, stdout, stderr := command(t.Context(), "locks", "audit", "--config", file); stdout != "nothing was done by hand\n" || stderr != "" {
				t.Errorf("at first: %s%s", stdout, stderr)
			}
			p := party{t, client}
			p.leave("order:lock:1", "settle 1", "outcome unknown")
			p.hold(redislock.Options{Kind: redislock.Fair}, "fair:1", "settle \x1b[2J")
			for _, args := range []string{"order:lock:1 --reason=why", "fair:1"} {
				bedtest.Eventually(t, "the holder is on record", func() bool {
					_, stdout, _ := command(t.Context(), "locks", "show", strings.Fields(args)[0], "--config", file)
					return strings.Contains(stdout, "request")
				})
				if code, _, stderr := command(t.Context(), append([]string{"locks", "release", "--yes", "--config", file}, strings.Fields(args)...)...); code != exitDone || strings.Count(stderr, "\n") != 1 {
					t.Fatalf("%s: exit code %d, %s", args, code, stderr)
				}
			}
			_, stdout, _ := command(t.Context(), "locks", "audit", "--config", file)
			got := regexp.MustCompile(` \S+@\S+ `).ReplaceAllString(plain(strings.ReplaceAll(stdout, "Z ", "Z  ")), " USER@HOST ")
			want := "TIME WHO DID WHAT HOLDER REQUEST REASON\n" +
				"TIME USER@HOST released fair:1 (fair) OWNER settle \\x1b[2J -\n" +
				"TIME USER@HOST released order:lock:1 (settlement) OWNER settle 1 why\n"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			_, stdout, _ = command(t.Context(), "locks", "audit", "--limit", "1", "--json", "--config", file)
			var report auditReport
			if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Entries) != 1 || *report.Entries[0].Key != "fair:1" || time.Since(report.Entries[0].At).Abs() > time.Hour {
				t.Errorf("%v: %s", err, stdout)
			}
		})
	}
}

// TestLocksAuditOfAQuorum shows what was done on all servers once.
func TestLocksAuditOfAQuorum(t *testing.T) {
	bed := bedtest.New(t)
	var clients []redis.UniversalClient
	var addrs []string
	for range 3 {
		addrs = append(addrs, bed.Redis().Addr())
		clients = append(clients, connected(t, fmt.Sprintf("{addresses: [%s]}", addrs[len(addrs)-1])))
	}
	file := writeConfig(t, "locks:\n  payout: {kind: quorum, key: 'payout:{id}', quorum: {addresses: "+list(addrs...)+"}}\n")
	for _, c := range clients {
		party{t, c}.play("hset payout:1 " + javaOwner + " 1\n")
	}
	if code, _, stderr := command(t.Context(), "locks", "release", "--yes", "payout:1", "--config", file); code != exitDone {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	_, stdout, _ := command(t.Context(), "locks", "audit", "--json", "--config", file)
	var report auditReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Entries) != 1 || report.Entries[0].Servers != 3 {
		t.Errorf("%v: %s", err, stdout)
	}
}

// TestLocksReleaseWithoutATrace releases a lock where Redis takes no entry: that is told of.
func TestLocksReleaseWithoutATrace(t *testing.T) {
	section := fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr())
	file := writeConfig(t, "redis: "+section+everyLock)
	p := party{t, connected(t, section)}
	p.play("set " + audit.Stream + " x\nhset order:lock:1 " + javaOwner + " 1\n")
	code, stdout, stderr := command(t.Context(), "locks", "release", "--yes", "order:lock:1", "--config", file)
	if code != exitDone || !strings.Contains(stdout, "\nreleased;") ||
		!strings.Contains(stderr, "locks release: released, and ordergate locks audit will not show it: writing to ordergate:audit: WRONGTYPE") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	long := strings.Repeat("x", audit.MaxReason+1)
	for args, want := range map[string]string{
		"release --yes order:lock:1 --reason " + long: "locks release: --reason has 501 bytes: at most 500 are kept",
		"audit --limit -1":                            "locks audit: --limit is negative",
		"audit":                                       "reading ordergate:audit: WRONGTYPE",
	} {
		code, stdout, stderr := command(t.Context(), append([]string{"locks", "--config", file}, strings.Fields(args)...)...)
		if code == exitDone || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%.40s: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
}

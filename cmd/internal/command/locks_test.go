package command

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// everyLock is a lock of each kind but a quorum.
const everyLock = `
locks:
  settlement: {key: "order:lock:{id}"}
  byhand: {key: "hand:{id}", format: string}
  fair: {kind: fair, key: "fair:{id}"}
  reading: {kind: read, key: "rw:{id}"}
  writing: {kind: write, key: "rw:{id}"}
  merchants: {kind: semaphore, permits: 3, key: "merchant:{id}"}
`

// TestLocks looks at locks of all kinds on each kind of Redis that others can look
// into, and releases them.
func TestLocks(t *testing.T) {
	for name, start := range map[string]func(*bedtest.Bed) string{
		"single": func(bed *bedtest.Bed) string { return fmt.Sprintf("{addresses: [%s]}", bed.Redis().Addr()) },
		"sentinel": func(bed *bedtest.Bed) string {
			return "{mode: sentinel, addresses: " + list(bed.Sentinel().Addrs()...) + "}"
		},
		"cluster": func(bed *bedtest.Bed) string {
			return "{mode: cluster, addresses: " + list(bed.Cluster().Addrs()...) + "}"
		},
	} {
		t.Run(name, func(t *testing.T) {
			section := start(bedtest.New(t))
			file, client := writeConfig(t, "redis: "+section+everyLock), connected(t, section)
			t.Run("list", func(t *testing.T) { testLocksList(t, file, client) })
			flush(t, client)
			t.Run("show", func(t *testing.T) { testLocksShow(t, file, client) })
			flush(t, client)
			t.Run("release", func(t *testing.T) { testLocksRelease(t, file, client) })
		})
	}
}

func flush(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	var err error
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
	} else {
		err = client.FlushAll(t.Context()).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// party takes locks, as several processes.
type party struct {
	t      *testing.T
	client redis.UniversalClient
}

func (p party) locker(opts redislock.Options) *redislock.Locker {
	p.t.Helper()
	opts.Process = "pod-7"
	l, err := redislock.New(p.client, opts)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(l.Close)
	return l
}

func (p party) hold(opts redislock.Options, key, request string) *redislock.Lease {
	p.t.Helper()
	lease, err := p.locker(opts).Acquire(p.t.Context(), key, redislock.Request(request))
	if err != nil {
		p.t.Fatal(err)
	}
	return lease
}

// leave holds a lock whose call is over.
func (p party) leave(key, request, reason string) {
	p.t.Helper()
	lease := p.hold(redislock.Options{Hold: time.Hour}, key, request)
	if err := lease.Hold(p.t.Context(), reason); err != nil {
		p.t.Fatal(err)
	}
}

// wait has another process wait for a lock. The channel gets its lease, or is
// closed when the test ends before.
func (p party) wait(opts redislock.Options, key string) <-chan *redislock.Lease {
	opts.Wait, opts.MaxWaitersPerKey = redislock.Wait{UpTo: time.Hour}, 1
	l := p.locker(opts)
	ctx, cancel := context.WithCancel(p.t.Context())
	granted := make(chan *redislock.Lease, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(granted)
		if lease, err := l.Acquire(ctx, key); err == nil {
			granted <- lease
		}
	})
	p.t.Cleanup(func() { cancel(); wg.Wait() })
	return granted
}

// play runs commands, one a line, as somebody else would.
func (p party) play(commands string) {
	p.t.Helper()
	for line := range strings.Lines(commands) {
		var words []any
		for word := range strings.FieldsSeq(line) {
			words = append(words, word)
		}
		if err := p.client.Do(p.t.Context(), words...).Err(); err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
	}
}

const javaOwner = "0b0dd1f4-6d29-4d4b-8c7f-d5b8b1b8c7e1:52"

var (
	ownerText    = regexp.MustCompile(`\b[0-9a-f]{8}\.\.\.:\d+`)
	fenceText    = regexp.MustCompile(`\b\d{16}\b`)
	durationText = regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?m?s\b`)
	timeText     = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
	blanks       = regexp.MustCompile(` +`)
)

// plain puts OWNER, FENCE, TIME and SPAN for what is different each time.
func plain(text string) string {
	text = ownerText.ReplaceAllString(text, "OWNER")
	text = fenceText.ReplaceAllString(text, "FENCE")
	text = timeText.ReplaceAllString(text, "TIME")
	text = durationText.ReplaceAllString(text, "SPAN")
	return blanks.ReplaceAllString(text, " ")
}

// eventually wants a command that is done and prints something, in the end: records
// are written, and waiters come, in their own time.
func eventually(t *testing.T, want string, args ...string) {
	t.Helper()
	want = strings.TrimPrefix(want, "\n")
	var code int
	var got, stderr string
	defer func() {
		if got != want {
			t.Logf("ordergate %v: exit code %d, %s(-want +got):\n%s", args, code, stderr, cmp.Diff(want, got))
		}
	}()
	bedtest.Eventually(t, strings.Join(args, " "), func() bool {
		code, got, stderr = command(t.Context(), args...)
		got = plain(got)
		return code == exitDone && stderr == "" && got == want
	})
}

// testLocksList shows the locks of every kind: ours, and those of others.
func testLocksList(t *testing.T, file string, client redis.UniversalClient) {
	eventually(t, "no lock is held\n", "locks", "list", "--config", file)
	p := party{t, client}
	p.hold(redislock.Options{}, "order:lock:1", "settle 1")
	p.leave("order:lock:2", "settle 2", "outcome unknown: response_timeout")
	p.hold(redislock.Options{Format: redislock.String}, "hand:1", "settle 3")
	p.hold(redislock.Options{Kind: redislock.Fair}, "fair:1", "settle 4")
	p.hold(redislock.Options{Kind: redislock.Read}, "rw:1", "read 5")
	p.hold(redislock.Options{Kind: redislock.Read}, "rw:1", "read 6")
	p.hold(redislock.Options{Kind: redislock.Write}, "rw:2", strings.Repeat("long ", 20))
	p.hold(redislock.Options{Kind: redislock.Semaphore, Permits: 3}, "merchant:1", "settle 7")
	p.wait(redislock.Options{}, "order:lock:1")
	p.wait(redislock.Options{Kind: redislock.Fair}, "fair:1")
	p.wait(redislock.Options{Kind: redislock.Fair}, "fair:1")
	p.play("hset order:lock:a " + javaOwner + " 1\n" +
		"hset order:lock:b " + javaOwner + " 1\npexpire order:lock:b 3600000\nset redisson_lock_token:{order:lock:b} 7\n" +
		"hset order:lock:c name Smith\n" +
		"hset order:lock:d:observe " + javaOwner + " 1\n" + // of a rule that only observes
		"set merchant:a 0\nset merchant:b 3\n")
	eventually(t, `
KEY KIND HOLDER AGE FENCE WAITING ENDS IN REQUEST
order:lock:1 exclusive OWNER SPAN FENCE 1 SPAN settle 1
order:lock:2 exclusive OWNER SPAN FENCE 0 SPAN settle 2; left held: outcome unknown: response_timeout
hand:1 exclusive OWNER SPAN FENCE 0 SPAN settle 3
fair:1 fair OWNER SPAN FENCE 2 SPAN settle 4
rw:1 read OWNER +1 SPAN - 0 SPAN read 5
rw:2 write OWNER SPAN FENCE 0 SPAN long long long long long long long long long long long long l...
merchant:1 semaphore OWNER SPAN - 0 SPAN settle 7
merchant:a semaphore - - - 0 - -
order:lock:a exclusive OWNER - - 0 never -
order:lock:b exclusive OWNER - 7 0 SPAN -
order:lock:c exclusive a hash that is no lock - - 0 - -
`, "locks", "list", "--config", file)
	eventually(t, `
KEY KIND HOLDER AGE FENCE WAITING ENDS IN REQUEST
order:lock:1 exclusive OWNER SPAN FENCE 1 SPAN settle 1
order:lock:2 exclusive OWNER SPAN FENCE 0 SPAN settle 2; left held: outcome unknown: response_timeout
... and 3 more, younger or of unknown age (--limit)
`, "locks", "list", "--lock", "settlement", "--limit", "2", "--config", file)
}

// TestLocksListWithoutRecord is what there is to go by in the first moments.
func TestLocksListWithoutRecord(t *testing.T) {
	section := fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr())
	file := writeConfig(t, "redis: "+section+everyLock)
	p := party{t, connected(t, section)}
	l := p.locker(redislock.Options{})
	if _, err := l.Acquire(t.Context(), "order:lock:1", redislock.Request("settle 1")); err != nil {
		t.Fatal(err)
	}
	l.Close() // renews nothing more
	p.play("del {order:lock:1}:ordergate_holders")
	eventually(t, `
KEY KIND HOLDER AGE FENCE WAITING ENDS IN REQUEST
order:lock:1 exclusive OWNER <=SPAN FENCE 0 SPAN -
`, "locks", "list", "--config", file)
	eventually(t, `
lock settlement (exclusive, format redisson)
key order:lock:1
state held
holder OWNER
 since TIME or later, at most SPAN ago: it left no record (yet), as a Java service does not
 fence FENCE
 ends in SPAN unless it is renewed
last fence FENCE
waiting 0 processes
`, "locks", "show", "order:lock:1", "--config", file)
}

func testLocksShow(t *testing.T, file string, client redis.UniversalClient) {
	p := party{t, client}
	p.hold(redislock.Options{}, "order:lock:1", "settle 1")
	p.leave("order:lock:2", "settle 2", "outcome unknown: response_timeout")
	p.hold(redislock.Options{Kind: redislock.Fair}, "fair:1", "settle 3")
	p.wait(redislock.Options{Kind: redislock.Fair}, "fair:1")
	p.hold(redislock.Options{Kind: redislock.Read}, "rw:1", "read 4")
	p.hold(redislock.Options{Kind: redislock.Semaphore, Permits: 3}, "merchant:1", "settle 5")
	p.play("hset order:lock:a " + javaOwner + " 2\nset merchant:a 0\nrpush order:lock:b x\nset redisson_lock_token:{order:lock:c} 7\n")
	for _, tt := range []struct{ args, want string }{
		{"order:lock:1", `
lock settlement (exclusive, format redisson)
key order:lock:1
state held
holder OWNER
 since TIME, SPAN ago
 request settle 1
 process pod-7
 fence FENCE
 ends in SPAN unless it is renewed
last fence FENCE
waiting 0 processes
`},
		{"--lock settlement 2", `
lock settlement (exclusive, format redisson)
key order:lock:2
state held
holder OWNER
 since TIME, SPAN ago
 request settle 2
 process pod-7
 fence FENCE
 left held its call is over; outcome unknown: response_timeout
 ends in SPAN: it is no longer renewed
last fence FENCE
waiting 0 processes
`},
		{"fair:1", `
lock fair (fair, format redisson)
key fair:1
state held
holder OWNER
 since TIME, SPAN ago
 request settle 3
 process pod-7
 fence FENCE
 ends in SPAN unless it is renewed
last fence FENCE
waiting 1
 1. OWNER, skipped in SPAN unless it tries again
`},
		{"--lock writing rw:1", `
lock writing (write, format redisson)
key rw:1
state held by the other side (read)
holder OWNER
 since TIME, SPAN ago
 request read 4
 process pod-7
 ends in SPAN unless it is renewed
last fence FENCE
waiting 0 processes
`},
		{"merchant:1", `
lock merchants (semaphore, format redisson)
key merchant:1
state held
permits 2 of 3 free
holder OWNER
 since TIME, SPAN ago
 request settle 5
 process pod-7
 ends in SPAN unless it is renewed
last fence FENCE
waiting 0 processes
`},
		{"merchant:a", `
lock merchants (semaphore, format redisson)
key merchant:a
state held
permits 0 free
others not known: Java has set the number of permits, and Redis did not return it
waiting 0 processes
`},
		{"merchant:b", `
lock merchants (semaphore, format redisson)
key merchant:b
state free
permits 3 of 3 free
waiting 0 processes
`},
		{"order:lock:a", `
lock settlement (exclusive, format redisson)
key order:lock:a
state held
holder OWNER
 since not known: it left no record, as a Java service does not
 entered 2 times
 ends never, unless it is released
waiting 0 processes
`},
		{"order:lock:b", `
lock settlement (exclusive, format redisson)
key order:lock:b
state not a lock of this kind: the key holds a list
`},
		{"order:lock:c", `
lock settlement (exclusive, format redisson)
key order:lock:c
state free
last fence 7
waiting 0 processes
`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			eventually(t, tt.want, append([]string{"locks", "show", "--config", file}, strings.Fields(tt.args)...)...)
		})
	}
}

// TestLocksJSON reads what scripts read.
func TestLocksJSON(t *testing.T) {
	section := fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr())
	file := writeConfig(t, "redis: "+section+everyLock)
	p := party{t, connected(t, section)}
	p.leave("order:lock:2", "settle \x1b[2J", "outcome unknown")
	lease := p.hold(redislock.Options{}, "order:lock:1", "settle 1")
	for _, args := range []string{"list", "show order:lock:2"} {
		code, stdout, stderr := command(t.Context(), append([]string{"locks", "--json", "--config", file}, strings.Fields(args)...)...)
		var got struct{ Locks []lockreport.Lock }
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitDone || stderr != "" {
			t.Fatalf("%s: exit code %d, %v, %s%s", args, code, err, stdout, stderr)
		}
		h := got.Locks[0].Holders[0]
		if !h.LeftHeld || !h.Recorded || *h.Reason != "outcome unknown" || *h.Request != `settle \x1b[2J` {
			t.Errorf("%s: got %s", args, stdout)
		}
		if strings.Contains(stdout, lease.Owner()) {
			t.Errorf("%s tells a whole owner, which is as good as the lock: %s", args, stdout)
		}
	}
}

// TestLocksAsDocumentedUser is one who may do what ordergate itself may, and one who
// may only look. Neither is told who waits.
func TestLocksAsDocumentedUser(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "locks-cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	looks := regexp.MustCompile("`(-@all [+]@read [^`]*)`").FindSubmatch(text)
	if looks == nil {
		t.Fatal("docs/locks-cli.md has no user who may only look")
	}
	args := append(bedtest.DocumentedUserOnly(t), "--user", "looker", "on", ">looker-secret", "~order:lock:*", "~{order:lock:*", "~redisson_*")
	server := bedtest.New(t).Redis(append(args, strings.Fields(string(looks[1]))...)...)
	section := fmt.Sprintf("{addresses: [%s], username: ordergate, password_env: PW}", server.Addr())
	file := writeConfig(t, "redis: "+section+"\nlocks: {settlement: {}}\n")
	party{t, connected(t, section)}.leave("order:lock:1", "settle 1", "why")
	for _, tt := range []struct {
		user, args string
		code       int
		want       string // in the output
	}{
		{"looker", "list", exitDone, "order:lock:1 exclusive OWNER SPAN FENCE - SPAN settle 1; left held: why\n"},
		{"looker", "show order:lock:1", exitDone, "waiting not known: Redis did not return it\n"},
		{"looker", "release --yes order:lock:1", exitFailed, "can't run this command or subcommand"},
		{"ordergate", "list", exitDone, "order:lock:1 exclusive OWNER SPAN FENCE - SPAN settle 1; left held: why\n"},
		{"ordergate", "show order:lock:1", exitDone, "waiting not known: Redis did not return it\n"},
		{"ordergate", "release --yes order:lock:1", exitDone, "released; waiters notified: 0\n"},
	} {
		t.Run(tt.user+" "+tt.args, func(t *testing.T) {
			t.Setenv("PW", tt.user+"-secret")
			t.Setenv("ORDERGATE_REDIS_USERNAME", tt.user)
			code, stdout, stderr := commandWith(t, nil, append([]string{"locks", "--config", file}, strings.Fields(tt.args)...)...)
			if code != tt.code || !strings.Contains(plain(stdout+stderr), tt.want) {
				t.Errorf("exit code %d, %s%s", code, stdout, stderr)
			}
		})
	}
}

func list(addrs ...string) string { return "[" + strings.Join(addrs, ", ") + "]" }

// connected returns the client that a file with this section redis gets.
func connected(t *testing.T, section string) redis.UniversalClient {
	t.Helper()
	getenv := func(name string) string { return map[string]string{"PW": "ordergate-secret"}[name] }
	c, err := config.Parse("ordergate.yaml", []byte("redis: "+section+"\n"), getenv)
	if err != nil {
		t.Fatal(err)
	}
	client, closeClient, err := redisconn.Connect(t.Context(), c.Redis, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeClient)
	return client
}

package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// commandWith is command with the test's environment, and somebody at the other
// end.
func commandWith(t *testing.T, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	cmd := newCommand(&out, &errs, os.Getenv)
	cmd.SetIn(stdin)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	var usage usageError
	switch {
	case errors.As(err, &usage):
		code = exitUsage
	case err != nil:
		code = exitFailed
	}
	if err != nil {
		fmt.Fprintln(&errs, err)
	}
	return code, out.String(), errs.String()
}

// testLocksRelease takes locks of every kind away from their holders, who notice,
// and wakes who waits.
func testLocksRelease(t *testing.T, file string, client redis.UniversalClient) {
	semaphore := redislock.Options{Kind: redislock.Semaphore, Permits: 1}
	for _, tt := range []struct {
		key, lock     string
		holder, rival redislock.Options
	}{
		{"order:lock:1", "settlement", redislock.Options{}, redislock.Options{}},
		{"hand:1", "byhand", redislock.Options{Format: redislock.String}, redislock.Options{Format: redislock.String}},
		{"fair:1", "fair", redislock.Options{Kind: redislock.Fair}, redislock.Options{Kind: redislock.Fair}},
		{"rw:1", "reading", redislock.Options{Kind: redislock.Read}, redislock.Options{Kind: redislock.Write}},
		{"rw:2", "reading", redislock.Options{Kind: redislock.Write}, redislock.Options{Kind: redislock.Read}},
		{"merchant:1", "merchants", semaphore, semaphore},
	} {
		t.Run(tt.key, func(t *testing.T) {
			t.Parallel() // it takes a third of the lease to notice
			p := party{t, client}
			tt.holder.Lease = 10 * time.Second
			lease := p.hold(tt.holder, tt.key, "settle 1")
			granted := p.wait(tt.rival, tt.key)
			bedtest.Eventually(t, "the holder is on record, and another waits", func() bool {
				_, stdout, _ := command(t.Context(), "locks", "show", tt.key, "--config", file)
				return strings.Contains(stdout, "settle 1") && regexp.MustCompile(`(?m)^waiting +1\b`).MatchString(stdout)
			})
			code, stdout, stderr := command(t.Context(), "locks", "release", "--yes", tt.key, "--config", file)
			if code != exitDone || !strings.Contains(stdout, lockreport.ReleaseWarning) || !strings.Contains(stdout, "\nreleased; waiters notified: ") {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
			log := fmt.Sprintf(`^time=\S+ level=WARN msg="lock released by hand" who=\S+@\S+ lock=%s key=%s kind=%s owner=%.8s\.\.\.\S* fence=%d request="settle 1" heard=\d do="nothing if you know who did" see=docs/locks-cli.md#who-released-what\n$`,
				tt.lock, tt.key, lockKind(tt.holder), lease.Owner(), lease.Fence())
			if !regexp.MustCompile(log).MatchString(stderr) {
				t.Errorf("stderr %q, want %s", stderr, log)
			}
			next, ok := <-granted
			if !ok || next.Fence() <= lease.Fence() {
				t.Errorf("granted to the next: %v, with fence %v after %d", ok, next, lease.Fence())
			}
			<-lease.Lost()
		})
	}
}

func lockKind(opts redislock.Options) redislock.Kind {
	if opts.Kind == "" {
		return redislock.Exclusive
	}
	return opts.Kind
}

// TestLocksReleaseRefuses is what leaves a lock alone.
func TestLocksReleaseRefuses(t *testing.T) {
	section := fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr())
	file := writeConfig(t, "redis: "+section+everyLock)
	embedded := writeConfig(t, "redis: {mode: embedded}\nlocks: {settlement: {}}\n")
	away := writeConfig(t, "redis: {"+nowhere+"}\nlocks: {settlement: {}}\n")
	none := writeConfig(t, "rules: []\n")
	p := party{t, connected(t, section)}
	p.hold(redislock.Options{}, "order:lock:1", "settle 1")
	permits := redislock.Options{Kind: redislock.Semaphore, Permits: 3}
	p.hold(permits, "merchant:1", "settle 2")
	p.hold(permits, "merchant:1", "settle 3")
	p.play("hset order:lock:a name Smith\nset merchant:a 0")
	for _, tt := range []struct {
		args string // before the file
		file string
		code int
		want string // in the one line of stderr
	}{
		{"release order:lock:1", file, exitUsage, "locks release: standard input is no terminal: add --yes"},
		{"release --yes order:lock:2", file, exitFailed, "locks release: order:lock:2 is not held"},
		{"release --yes order:lock:a", file, exitFailed, "order:lock:a is not a lock of this kind: it holds a hash that is no lock"},
		{"release --yes merchant:1", file, exitFailed, "merchant:1 has 2 such holders: say which with --owner"},
		{"release --yes merchant:1 --owner 0b0d:1", file, exitFailed, "no holder of merchant:1 is called 0b0d:1"},
		{"release --yes merchant:a", file, exitFailed, "the permits of merchant:a are held by others than ordergate"},
		{"release --yes order:lock:1 --owner 0", file, exitFailed, "--owner is for semaphores"},
		{"release --yes session:1", file, exitUsage, `"session:1" is the key of no lock`},
		{"release --yes", file, exitUsage, "want one key, got 0 arguments"},
		{"show order:lock:1 order:lock:2", file, exitUsage, "want one key, got 2 arguments"},
		{"show --lock payout 1", file, exitUsage, `--lock "payout" is not in`},
		{"list --lock payout", file, exitUsage, `--lock "payout" is not in`},
		{"list --limit -1", file, exitUsage, "--limit is negative"},
		{"list order:lock:1", file, exitUsage, `unknown argument "order:lock:1"`},
		{"list", embedded, exitUsage, "its locks are inside the serving process"},
		{"show order:lock:1", embedded, exitUsage, "its locks are inside the serving process"},
		{"release --yes order:lock:1", embedded, exitUsage, "its locks are inside the serving process"},
		{"list", away, exitFailed, "connection refused"},
		{"show order:lock:1", away, exitFailed, "connection refused"},
		{"list", none, exitUsage, "has no locks"},
		{"list", "nowhere.yaml", exitUsage, "nowhere.yaml"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := command(t.Context(), append([]string{"locks", "--config", tt.file}, strings.Fields(tt.args)...)...)
			if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, %s%s", code, stdout, stderr)
			}
		})
	}
	_, stdout, _ := command(t.Context(), "locks", "list", "--config", file)
	for _, held := range []string{"order:lock:1 ", "merchant:1 ", "+1 "} {
		if !strings.Contains(stdout, held) {
			t.Errorf("%q is not held any more:\n%s", held, stdout)
		}
	}
}

// TestLocksReleaseOnePermit leaves the other holders' alone.
func TestLocksReleaseOnePermit(t *testing.T) {
	section := fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr())
	file := writeConfig(t, "redis: "+section+everyLock)
	p := party{t, connected(t, section)}
	permits := redislock.Options{Kind: redislock.Semaphore, Permits: 3}
	first, second := p.hold(permits, "merchant:1", "settle 1"), p.hold(permits, "merchant:1", "settle 2")
	code, stdout, stderr := command(t.Context(), "locks", "release", "--yes", "--owner", lockreport.ShortOwner(first.Owner()), "merchant:1", "--config", file)
	if code != exitDone || strings.Contains(stdout, lockreport.ShortOwner(second.Owner())) {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	if err := first.Release(t.Context()); !errors.Is(err, redislock.ErrLost) {
		t.Errorf("the permit that was taken away: %v", err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Errorf("the other permit: %v", err)
	}
}

package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestTooOld(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		info string
		want bool
	}{
		{"# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:0\r\n", false},
		{"redis_version:6.2.0\r\n", false},
		{"redis_version:6.1.99\r\n", true},
		{"redis_version:6.0.16\r\n", true},
		{"redis_version:5.0.14\r\n", true},
		{"redis_version:3.2\r\n", true},
		{"redis_version:6.10.0\r\n", false},
		{"redis_version:10.0.1\r\n", false},
		{"redis_version:255.255.255\r\n", false}, // a development build
		{"redis_version:5.0.14", true},
		{"redis_version:6\r\n", false},
		{"redis_version:\r\n", false},
		{"redis_version:a.b.c\r\n", false},
		{"redis_version:5.x\r\n", false},
		{"dragonfly_version:df-v1\r\n", false},
		{"", false},
	} {
		if got := tooOld(tt.info); got != tt.want {
			t.Errorf("tooOld(%q) = %v, want %v", tt.info, got, tt.want)
		}
	}
}

// oldRedis has a client say that its server is of another version.
type oldRedis struct {
	redis.UniversalClient
	info string
	err  error
}

func (o oldRedis) Info(ctx context.Context, _ ...string) *redis.StringCmd {
	cmd := redis.NewStringCmd(ctx)
	cmd.SetVal(o.info)
	if o.err != nil {
		cmd.SetErr(o.err)
	}
	return cmd
}

// TestCheck takes and releases a lock, and says what is to be mended.
func TestCheck(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, opts := range lockKinds {
			l := newLocker(t, c, opts)
			for range 3 {
				if err := l.Check(t.Context(), "k"); err != nil || l.Health() != nil {
					t.Errorf("%s %s: %v, %v", opts.Kind, opts.Format, err, l.Health())
				}
			}
			if opts.Kind != Semaphore && taken(t, c) { // whose counter stays
				t.Errorf("%s %s: the lock was left behind", opts.Kind, opts.Format)
			}
			lease := acquire(t, l, "k")
			if err := l.Check(t.Context(), "k"); err != nil {
				t.Errorf("%s %s: with another in the middle of it: %v", opts.Kind, opts.Format, err)
			}
			release(t, lease)
			flush(t, c)
		}
		var refused *RefusedError
		l := newLocker(t, oldRedis{UniversalClient: c, info: "redis_version:6.0.16\r\n"}, Options{})
		if err := l.Check(t.Context(), "k"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "6.2") {
			t.Errorf("an old Redis: %v", err)
		}
		if !errors.As(l.Health(), &refused) {
			t.Errorf("Trouble after that: %v", l.Health())
		}
		release(t, acquire(t, l, "k")) // a vendor's that says less than it can
		if err := l.Health(); err != nil {
			t.Errorf("Trouble after a grant: %v", err)
		}
		l = newLocker(t, oldRedis{UniversalClient: c, err: errReset}, Options{})
		if err := l.Check(t.Context(), "k"); !errors.Is(err, errReset) || l.Health() != nil {
			t.Errorf("a lost connection: %v, %v", err, l.Health())
		}
	})
}

// TestCheckPublished has a message arrive, on the channel of each kind of lock.
func TestCheckPublished(t *testing.T) {
	t.Parallel()
	for _, top := range topologies {
		t.Run(top.name, func(t *testing.T) {
			t.Parallel()
			c := top.start(t, 1)[0]
			for _, opts := range lockKinds {
				if took, err := newLocker(t, c, opts).CheckPublished(t.Context(), "k"); err != nil || took <= 0 {
					t.Errorf("%s %s: %v, %v", opts.Kind, opts.Format, took, err)
				}
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		f := startFenced(t)
		for name, tt := range map[string]struct{ rule, want string }{
			"to subscribe": {"-subscribe", "subscribing to redisson_lock__channel:{k}: NOPERM"},
			"the channel":  {"resetchannels", "subscribing to redisson_lock__channel:{k}: NOPERM"},
			"to publish":   {"-publish", "publishing on redisson_lock__channel:{k}: NOPERM"},
		} {
			f.allow(t, tt.rule)
			if _, err := newLocker(t, f.client, Options{}).CheckPublished(t.Context(), "k"); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// fenced is a Redis whose user "locks" may do what the rules allow.
type fenced struct {
	server *testbed.Redis
	admin  redis.UniversalClient
	client redis.UniversalClient // as user locks
}

func startFenced(t *testing.T) *fenced {
	t.Helper()
	f := &fenced{server: bedtest.New(t).Redis()}
	admin := clientOptions(f.server.Addr())
	admin.Username, admin.Password = testbed.User, testbed.Password
	f.admin = connect(t, admin)
	f.allow(t)
	opts := clientOptions(f.server.Addr())
	opts.Username, opts.Password = "locks", "secret"
	f.client = connect(t, opts)
	return f
}

// allow resets what the user may do to everything, less the rules.
func (f *fenced) allow(t *testing.T, rules ...string) {
	t.Helper()
	args := append([]string{"locks", "reset", "on", ">secret", "~*", "&*", "+@all"}, rules...)
	do := []any{"acl", "setuser"}
	for _, arg := range args {
		do = append(do, arg)
	}
	if err := f.admin.Do(t.Context(), do...).Err(); err != nil {
		t.Fatal(err)
	}
	// A user that was reset has its connections closed, some of which are in the
	// client's pool.
	if f.client != nil {
		bedtest.Eventually(t, "the client is let in", func() bool { return f.client.Ping(t.Context()).Err() == nil })
	}
}

// TestRefused has Redis forbid what the locks need, which is Trouble until it was
// allowed and a lock was granted.
func TestRefused(t *testing.T) {
	t.Parallel()
	f := startFenced(t)
	for _, tt := range []struct {
		name  string
		rules []string
	}{
		{"EVALSHA", []string{"-evalsha"}},
		{"scripts", []string{"-@scripting"}},
		{"EVAL", []string{"-eval"}}, // needed once
		{"all keys", []string{"resetkeys"}},
		{"these keys", []string{"resetkeys", "~other:*"}},
		{"to write", []string{"resetkeys", "%R~*"}},
		{"HSET in a script", []string{"-hset"}},
		{"TIME in a script", []string{"-time"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "to write" && strings.Contains(f.admin.Info(t.Context(), "server").Val(), "redis_version:6.") {
				t.Skip("Redis has rights to read or to write a key since 7.0")
			}
			l := newLocker(t, f.client, Options{Wait: Wait{UpTo: time.Minute}})
			f.admin.ScriptFlush(t.Context())
			f.allow(t, tt.rules...)
			_, err := l.Acquire(t.Context(), "k")
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("Acquire: %v, want a RefusedError", err)
			}
			if !errors.Is(l.Health(), refused) {
				t.Errorf("Trouble: %v, want %v", l.Health(), refused)
			}
			if err := l.Check(t.Context(), "check"); !errors.As(err, &refused) {
				t.Errorf("Check: %v, want a RefusedError", err)
			}
			l.cleanup.Wait()
			f.allow(t)
			if !errors.As(l.Health(), &refused) {
				t.Errorf("Trouble is over before a grant: %v", l.Health())
			}
			release(t, acquire(t, l, "k"))
			if err := l.Health(); err != nil {
				t.Errorf("Trouble after a grant: %v", err)
			}
			if taken(t, f.admin) {
				t.Error("the lock was left behind")
			}
		})
	}
}

// TestRefusedToPublish has Redis forbid what a release needs beyond a grant.
func TestRefusedToPublish(t *testing.T) {
	t.Parallel()
	f := startFenced(t)
	for _, rules := range [][]string{{"-publish"}} {
		t.Run(strings.Join(rules, " "), func(t *testing.T) {
			l := newLocker(t, f.client, Options{})
			f.allow(t, rules...)
			err := l.Check(t.Context(), "check")
			var refused *RefusedError
			if !errors.As(err, &refused) || !errors.Is(l.Health(), refused) {
				t.Errorf("Check: %v, Trouble: %v, want a RefusedError", err, l.Health())
			}
			f.allow(t)
			if err := l.Check(t.Context(), "check"); err != nil || l.Health() != nil {
				t.Errorf("after it was allowed: Check: %v, Trouble: %v", err, l.Health())
			}
		})
	}
	// The clients need no channel of their own to wait: they poll.
	f.allow(t, "-subscribe")
	l := newLocker(t, f.client, Options{Wait: Wait{UpTo: time.Minute}})
	held := acquire(t, newLocker(t, f.admin, Options{}), "k")
	got := async(t.Context(), l, "k")
	wantWaiting(t, l, 1)
	release(t, held)
	release(t, bedtest.Receive(t, "the grant", got).ok(t))
}

// TestWrongPassword is a refusal too.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	f := startFenced(t)
	opts := clientOptions(f.server.Addr())
	opts.Username, opts.Password = "locks", "sacred"
	l := newLocker(t, connect(t, opts), Options{})
	_, err := l.Acquire(t.Context(), "k")
	var refused *RefusedError
	if !errors.As(err, &refused) || !errors.Is(l.Health(), refused) {
		t.Errorf("Acquire: %v, Trouble: %v, want a RefusedError", err, l.Health())
	}
	if strings.Contains(fmt.Sprint(err), "sacred") {
		t.Errorf("the error tells the password: %v", err)
	}
}

// shapes are what a key may hold, by name: locks of each kind, and what is no lock.
var shapes = []struct {
	name string
	play string // commands, one a line, with the key as k
}{
	{"exclusive", "hset k o:1 1\npexpire k 60000"},
	{"read", "hset k mode read o:1 1\npexpire k 60000\nset {k}:o:1:rwlock_timeout:1 1 px 60000"},
	{"write", "hset k mode write o:1:write 1\npexpire k 60000"},
	{"semaphore", "set k 0"},
	{"string", "set k owner-1 px 60000"},
	{"list", "rpush k a"},
	{"set", "sadd k a"},
	{"sorted set", "zadd k 1 a"},
	{"stream", "xadd k * a b"},
}

// TestForeign has every kind meet what every other leaves at a key. What looks like
// one of its own that is held is busy, and the rest is named. (A fair lock looks
// like an exclusive one, and anything may be the value of a string.) Nothing is
// granted, nor changed.
func TestForeign(t *testing.T) {
	t.Parallel()
	busy := map[string][]string{ // of the shapes, by kind and format
		"exclusive redisson": {"exclusive"},
		"fair redisson":      {"exclusive"},
		"read redisson":      {"write"},
		"write redisson":     {"read", "write"},
		"semaphore redisson": {"semaphore"},
		"exclusive string":   {"string", "semaphore"},
	}
	shared := map[string]string{"read redisson": "read"}
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, opts := range lockKinds {
			opts.ensureDefaults()
			kind := fmt.Sprintf("%s %s", opts.Kind, opts.Format)
			t.Run(kind, func(t *testing.T) {
				c.FlushAll(t.Context())
				l := newLocker(t, c, opts)
				held := make(map[string]string) // what the keys held before
				for _, shape := range shapes {
					if kind == "semaphore redisson" && shape.name == "string" {
						continue // an error of another type, so far
					}
					key := "a " + shape.name
					play(t, c, key, shape.play)
					held[key] = c.Dump(t.Context(), key).Val()
					l.health.foreign = nil
					lease, err := l.Acquire(t.Context(), key)
					var foreign *ForeignError
					switch {
					case shared[kind] == shape.name:
						if err != nil {
							t.Fatal(err)
						}
						release(t, lease)
					case slices.Contains(busy[kind], shape.name):
						if !errors.Is(err, ErrBusy) || l.Health() != nil {
							t.Errorf("%s: %v, Trouble: %v, want ErrBusy", key, err, l.Health())
						}
					case !errors.As(err, &foreign) || foreign.Key != key || !strings.Contains(err.Error(), key):
						t.Errorf("%s: %v, want a ForeignError that names it", key, err)
					case !errors.Is(l.Health(), foreign):
						t.Errorf("%s: Trouble: %v, want %v", key, l.Health(), foreign)
					case foreign.Unwrap() == nil:
						t.Errorf("%s: without what Redis said", key)
					}
				}
				l.cleanup.Wait()
				for key, was := range held {
					if c.Dump(t.Context(), key).Val() != was {
						t.Errorf("%s was changed", key)
					}
				}
				if l.Held() != 0 || l.Waiting() != 0 {
					t.Errorf("%d are held, %d wait", l.Held(), l.Waiting())
				}
			})
		}
	})
}

// TestKindsExclude has real leases of two kinds at one key: whoever is second is
// not let in, whatever the error, and does the first no harm.
func TestKindsExclude(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		lockers := make([]*Locker, len(lockKinds))
		for i, opts := range lockKinds {
			if opts.Kind == Semaphore {
				opts.Permits = 1
			}
			lockers[i] = newLocker(t, c, opts)
		}
		held := make(map[string]*Lease)
		for _, first := range lockers {
			for _, second := range lockers {
				if first == second && first.opts.Kind == Read {
					continue // they share
				}
				pair := fmt.Sprintf("%s %s, met by %s %s", first.opts.Kind, first.opts.Format, second.opts.Kind, second.opts.Format)
				held[pair] = acquire(t, first, pair)
				if lease, err := second.Acquire(t.Context(), pair); err == nil {
					t.Errorf("%s: let in", pair)
					release(t, lease)
				}
			}
		}
		for _, l := range lockers {
			l.cleanup.Wait()
		}
		for pair, lease := range held {
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("%s: %v", pair, err)
			}
		}
	})
}

// TestForeignThenRefused lets a key's trouble yield to a worse one, and come back.
func TestForeignThenRefused(t *testing.T) {
	t.Parallel()
	f := startFenced(t)
	l := newLocker(t, f.client, Options{})
	f.admin.Set(t.Context(), "k", "7", 0)
	_, err := l.Acquire(t.Context(), "k")
	var foreign *ForeignError
	if !errors.As(err, &foreign) {
		t.Fatalf("Acquire: %v, want a ForeignError", err)
	}
	f.allow(t, "-evalsha")
	_, err = l.Acquire(t.Context(), "other")
	var refused *RefusedError
	if !errors.As(err, &refused) || !errors.As(l.Health(), &refused) {
		t.Errorf("Acquire: %v, Trouble: %v, want a RefusedError", err, l.Health())
	}
	f.allow(t)
	release(t, acquire(t, l, "other"))
	if !errors.As(l.Health(), &foreign) {
		t.Errorf("Trouble: %v, want the ForeignError, which nobody has mended", l.Health())
	}
	l.health.at = l.health.at.Add(-foreignShown)
	if err := l.Health(); err != nil {
		t.Errorf("Trouble after %v: %v", foreignShown, err)
	}
}

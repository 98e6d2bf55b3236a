package changelog

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire lies between an instance and Redis. It passes commands on unless a fate is set.
type wire struct {
	log   *Log
	other *redis.Client // bypasses the wire

	mu      sync.Mutex
	fate    fate
	passing sync.RWMutex // read-locked while a command passes
}

// fate decides on a command. It may call next, which sends the command and waits for the reply.
type fate func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// wired puts a wire between Redis and an instance, which must not run yet.
func wired(t *testing.T, s server, i *instance) *wire {
	t.Helper()
	w := &wire{log: i.Log, other: connect(t, s)}
	i.client.AddHook(w)
	return w
}

// passes marks the context of a command that passes: those that set its connection up do, too.
type passes struct{}

// set changes the fate of later commands, and waits for the replies to those that pass.
func (w *wire) set(f fate) {
	w.mu.Lock()
	w.fate = f
	w.mu.Unlock()
	w.passing.Lock()
	w.passing.Unlock() //nolint:staticcheck // the section is empty: nothing passes any more
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Value(passes{}) != nil {
			return next(ctx, cmd)
		}
		w.mu.Lock()
		f := w.fate
		if f == nil {
			w.passing.RLock()
			defer w.passing.RUnlock()
		}
		w.mu.Unlock()
		if f == nil {
			return next(context.WithValue(ctx, passes{}, true), cmd)
		}
		return f(ctx, cmd, next)
	}
}

var errCut = errors.New("the wire is cut")

// cut drops the command.
func cut(context.Context, redis.Cmder, redis.ProcessHook) error { return errCut }

// only applies a fate to one script.
func only(script *redis.Script, f fate) fate {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if runs(cmd, script) {
			return f(ctx, cmd, next)
		}
		return next(ctx, cmd)
	}
}

func runs(cmd redis.Cmder, script *redis.Script) bool {
	switch cmd.Name() {
	case "evalsha":
		return cmd.Args()[1] == script.Hash()
	case "eval": // which follows when the server does not know the script
		source, _ := cmd.Args()[1].(string)
		return fmt.Sprintf("%x", sha1.Sum([]byte(source))) == script.Hash()
	}
	return false
}

// again sends a command past the wire unchanged.
func (w *wire) again(cmd redis.Cmder) error {
	return w.other.Do(context.Background(), cmd.Args()...).Err()
}

// held is a fate that holds replies back until release is called.
type held struct {
	entered chan struct{} // receives for each reply that is held
	open    chan struct{}
	release func()
}

func hold(t *testing.T) *held {
	h := &held{entered: make(chan struct{}, 1000), open: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.open) })
	t.Cleanup(h.release)
	return h
}

func (h *held) reply(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	h.entered <- struct{}{}
	<-h.open
	return err
}

// brisk is a member with a short lease, which it renews about every 30 ms.
func brisk(instanceID string) Options {
	return Options{Member: instanceID, PollEvery: 10 * time.Millisecond, Timeout: 5 * time.Second, Lease: 150 * time.Millisecond}
}

// patient is a member whose lease outlasts any test.
func patient(instanceID string) Options {
	o := brisk(instanceID)
	o.Lease = time.Hour
	return o
}

// start runs an instance that newInstance has returned.
func (i *instance) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	i.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("Run:", err)
		}
	})
	t.Cleanup(i.stop)
}

// wiredInstance runs an instance behind a wire.
func wiredInstance(t *testing.T, s server, opts Options) (*instance, *wire) {
	t.Helper()
	i := newInstance(t, s, opts)
	w := wired(t, s, i)
	i.start(t)
	return i, w
}

// waitSure waits until each instance can open a window.
func waitSure(t *testing.T, all ...*instance) {
	t.Helper()
	for _, i := range all {
		eventually(t, "no member is away", func() bool { return i.Wait(t.Context()) == nil })
	}
}

// waitAway waits until an instance finds that a member is away.
func waitAway(t *testing.T, i *instance, away string) {
	t.Helper()
	eventually(t, away+" is found to be away", func() bool {
		err := i.Wait(t.Context())
		if slices.Contains(i.opts.Require, away) {
			return errors.Is(err, ErrNotFollowed) && err.Error() == ErrNotFollowed.Error()+": "+away
		}
		return errors.Is(err, ErrAway) && err.Error() == ErrAway.Error()+": "+away
	})
}

// members returns the members with the ends of their leases.
func members(t *testing.T, c *redis.Client) map[string]float64 {
	t.Helper()
	all, err := c.ZRangeWithScores(t.Context(), membersKey, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	ends := make(map[string]float64, len(all))
	for _, z := range all {
		ends[z.Member.(string)] = z.Score
	}
	return ends
}

// kinds returns the kinds of the doubts that an instance has received.
func (i *instance) kinds() (all []Kind) {
	for _, d := range i.doubted() {
		all = append(all, d.Kind)
	}
	return all
}

// hasKind reports whether an instance has received a doubt of a kind.
func (i *instance) hasKind(k Kind) bool { return slices.Contains(i.kinds(), k) }

// database is one database of a server, with its own keys.
type database struct {
	server
	n int
}

func (d database) options() *redis.Options {
	o := d.server.options()
	o.DB = d.n
	return o
}

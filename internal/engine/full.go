package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// fullness is whether Redis refuses writes for want of memory. It sees the answer to each
// command, whichever part of ordergate sent it, and tries a write of its own until one is
// taken. It is safe for concurrent use.
type fullness struct {
	client redis.UniversalClient
	log    *slog.Logger
	full   atomic.Bool // spares the mutex while all is well

	mu      sync.Mutex
	key     string // one that was refused: in a cluster, only its server may be full
	since   time.Time
	refused int // commands
}

// fullText tells an operator what it costs, and what to do.
const fullText = "Redis is full and refuses writes (OOM): settlements are refused, and new orders are not logged; raise maxmemory, or remove what is not ordergate's"

// tryFull is how often a write is tried while Redis is full.
const tryFull = 5 * time.Second

// watchFull returns the fullness of what a client talks to. Keep [fullness.run] running.
func watchFull(client redis.UniversalClient, log *slog.Logger) *fullness {
	f := &fullness{client: client, log: log}
	switch c := client.(type) {
	case *redis.ClusterClient: // some commands go to a node's own client
		c.OnNewNode(func(node *redis.Client) { node.AddHook(f) })
	case *redis.Client:
		c.AddHook(f)
	}
	return f
}

// reason says why no write is taken, "" if there is no such reason. It is "" of nil.
func (f *fullness) reason() string {
	if f == nil || !f.full.Load() {
		return ""
	}
	return fullText
}

// run tries whether Redis has room again, until ctx ends.
func (f *fullness) run(ctx context.Context) {
	if f == nil {
		return
	}
	tick := time.NewTicker(tryFull)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if f.full.Load() {
			f.try(ctx)
		}
	}
}

// try writes a key that ends at once, in the slot of one that was refused. Any answer but
// that Redis is full ends the trouble: the next write that it refuses begins it anew.
func (f *fullness) try(ctx context.Context) {
	f.mu.Lock()
	key := "ordergate:{" + hashTag(f.key) + "}:full"
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, RedisTimeout)
	defer cancel()
	err := f.client.Set(ctx, key, 1, time.Millisecond).Err()
	var said redis.Error
	if err != nil && (isFull(err) || !errors.As(err, &said)) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full.Store(false)
	f.log.Info("Redis takes writes again", "full_since", f.since, "refused", f.refused)
	f.refused = 0
}

// note takes the answer to a command.
func (f *fullness) note(cmd redis.Cmder, err error) {
	if err == nil || !isFull(err) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused++
	if f.full.Load() {
		return
	}
	f.key, f.since = firstKey(cmd), time.Now()
	f.full.Store(true)
	f.log.Error(fullText, "error", err)
}

// isFull reports whether an error is Redis's answer when it is at maxmemory and evicts
// nothing. That of a script has more words around these.
func isFull(err error) bool { return strings.Contains(err.Error(), "OOM command not allowed") }

// firstKey returns a command's first key.
func firstKey(cmd redis.Cmder) string {
	at := 1
	if name := strings.ToLower(cmd.Name()); name == "eval" || name == "evalsha" {
		at = 3
	}
	if args := cmd.Args(); at < len(args) {
		if key, ok := args[at].(string); ok {
			return key
		}
	}
	return ""
}

// hashTag returns what decides in which slot a key lies.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// DialHook implements redis.Hook.
func (f *fullness) DialHook(next redis.DialHook) redis.DialHook {
	return next
}

// ProcessHook implements redis.Hook.
func (f *fullness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		f.note(cmd, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (f *fullness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds { // of a cluster's node, err does not tell
			f.note(cmd, cmd.Err())
		}
		return err
	}
}

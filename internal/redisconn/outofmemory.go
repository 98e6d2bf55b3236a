package redisconn

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/rediskey"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// MemoryWatch detects a Redis that refuses writes because its memory is full. It inspects
// the reply to each command of a client. After a refusal it tries writes of its own until one
// succeeds. It is safe for concurrent use. A nil *MemoryWatch detects nothing.
type MemoryWatch struct {
	client redis.UniversalClient
	log    *slog.Logger
	full   atomic.Bool // avoids the mutex in the normal case

	mu      sync.Mutex
	key     string // of a refused command: in a cluster, only its server may be full
	since   time.Time
	refused int // commands
}

// fullText names the consequence and the remedy.
const fullText = "Redis is full and refuses writes (OOM): settlements are refused, and new orders are not logged; raise maxmemory, or remove keys that are not ordergate's"

// tryInterval is the time between two test writes to a full Redis.
const tryInterval = 5 * time.Second

// WatchMemory watches the servers of a client. Keep [MemoryWatch.Run] running.
func WatchMemory(client redis.UniversalClient, log *slog.Logger) *MemoryWatch {
	f := &MemoryWatch{client: client, log: log}
	switch c := client.(type) {
	case *redis.ClusterClient: // some commands go to a node's own client
		c.OnNewNode(func(node *redis.Client) { node.AddHook(f) })
	case *redis.Client:
		c.AddHook(f)
	}
	return f
}

// Reason returns why Redis refuses writes; "": it does not.
func (f *MemoryWatch) Reason() string {
	if f == nil || !f.full.Load() {
		return ""
	}
	return fullText
}

// Run tests whether a full Redis takes writes again, until ctx ends.
func (f *MemoryWatch) Run(ctx context.Context) {
	if f == nil {
		return
	}
	for range wait.Every(ctx, tryInterval) {
		if f.full.Load() {
			f.try(ctx)
		}
	}
}

// try writes a key that expires at once, in the slot of a refused one. Every reply except
// "out of memory" ends the condition. The next refused write begins it again.
func (f *MemoryWatch) try(ctx context.Context) {
	f.mu.Lock()
	key := rediskey.Of(hashTag(f.key), "full")
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err := f.client.Set(ctx, key, 1, time.Millisecond).Err()
	var reply redis.Error
	if err != nil && (isFull(err) || !errors.As(err, &reply)) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full.Store(false)
	f.log.Info("Redis takes writes again", "full_since", f.since, "refused", f.refused)
	f.refused = 0
}

// note inspects the reply to a command.
func (f *MemoryWatch) note(cmd redis.Cmder, err error) {
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
	f.log.Error(fullText, "error", err,
		runbook.FullRedis.Do("raise maxmemory, or remove keys that are not ordergate's"))
}

// isFull reports whether an error is the reply of a Redis that has reached maxmemory and
// evicts nothing. A script's error contains the same words among others.
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

// hashTag returns the part of a key that determines its slot.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// DialHook implements redis.Hook.
func (f *MemoryWatch) DialHook(next redis.DialHook) redis.DialHook {
	return next
}

// ProcessHook implements redis.Hook.
func (f *MemoryWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		f.note(cmd, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (f *MemoryWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds { // the client of a cluster's node does not return these
			f.note(cmd, cmd.Err())
		}
		return err
	}
}

package loader

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/runbook"
)

const (
	// cachedFor is how long a snapshot stays in Redis, for instances that start at about the
	// same time.
	cachedFor = 10 * time.Minute
	// cacheChunk bounds a write, during which Redis serves no other command.
	cacheChunk = 4 << 20
	// maxCachedBytes is the size of the largest snapshot in Redis.
	maxCachedBytes = 1 << 30
)

// snapshotCache lets one instance read the sources of a filter when several start at once. The
// others load its snapshot from Redis. A nil *snapshotCache does nothing.
type snapshotCache struct {
	loader *Loader
	client redis.UniversalClient
	prefix string // of the keys: without braces, so that a cluster spreads the chunks
	stamp  string // fingerprint of the sources
	dir    string
	lock   redisset.LeaderLock
	log    *slog.Logger
}

// cachedSnapshot is the entry in Redis.
type cachedSnapshot struct {
	Token  string `redis:"token"`
	Chunks int    `redis:"chunks"` // 0: it is too large, and each instance reads the sources
	Stamp  string `redis:"stamp"`
}

func (o *Options) newSnapshotCache(name string, loader *Loader) *snapshotCache {
	c, stamp := o.Config.Filters[name], loader.fingerprint(time.Now())
	if c.ShareLoad == nil || !*c.ShareLoad || stamp == "" || loader.logSnapshot != nil || len(loader.tables()) != len(loader.sources) {
		return nil
	}
	return &snapshotCache{
		loader: loader, client: o.Redis, prefix: "ordergate:fleet:" + name, stamp: stamp, dir: snapshotDir(c), log: o.Logger.With("filter", name),
		lock: o.leaderLock(name, workLoad),
	}
}

// load uses the snapshot of another instance, or loads and stores one for the others. If the
// cache fails, it loads anyway.
func (f *snapshotCache) load(ctx context.Context, load func(context.Context) error) error {
	if f == nil {
		return load(ctx)
	}
	if f.use(ctx) {
		return nil
	}
	f.loader.filter.NoteProgress("waiting to read the sources: another ordergate may be reading them")
	work, _, done, err := f.lock(ctx)
	if err != nil {
		f.log.Warn("the sources are read although another ordergate may be reading them", "error", err,
			runbook.SharedLoad.Do("nothing: the database is read twice"))
		return load(ctx)
	}
	defer func() {
		if done != nil {
			done()
		}
	}()
	if shared, ok := f.found(ctx); ok {
		done()
		done = nil
		if shared.Chunks > 0 && f.use(ctx) {
			return nil
		}
		return load(ctx)
	}
	if err := load(work); err != nil {
		if cause := context.Cause(work); cause != nil && ctx.Err() == nil {
			return cause
		}
		return err
	}
	if err := f.store(work); err != nil && ctx.Err() == nil {
		level := slog.LevelWarn
		// Not followed yet, or in doubt, which has its own line.
		if errors.Is(err, changelog.ErrNotFollowed) || errors.Is(err, filter.ErrNotReady) {
			level = slog.LevelInfo
		}
		f.log.Log(ctx, level, "other ordergates have to read the sources themselves", "error", err,
			runbook.SharedLoad.Do("nothing: the database is read more often"))
	}
	return nil
}

func (f *snapshotCache) found(ctx context.Context) (shared cachedSnapshot, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	err := f.client.HGetAll(ctx, f.prefix).Scan(&shared)
	return shared, err == nil && shared.Stamp == f.stamp
}

// use reports whether it has loaded the snapshot of another instance. The loader reads later
// orders from the change log and, before it answers Absent, from the tables.
func (f *snapshotCache) use(ctx context.Context) bool {
	shared, ok := f.found(ctx)
	if !ok || shared.Chunks == 0 {
		return false
	}
	err := f.restore(ctx, shared)
	if err != nil && ctx.Err() == nil {
		f.log.Warn("the snapshot that another ordergate left is not used", "error", err,
			runbook.SharedLoad.Do("nothing: the database is read"))
	}
	return err == nil
}

func (f *snapshotCache) restore(ctx context.Context, shared cachedSnapshot) error {
	return download(f.dir, "ordergate-fleet-*", shared.Chunks, func(n int, to io.Writer) error {
		chunk, err := f.client.Get(ctx, f.chunk(shared.Token, n)).Bytes()
		if err == nil {
			_, err = to.Write(chunk)
		}
		if err != nil {
			return fmt.Errorf("chunk %d of %d: %w", n+1, shared.Chunks, err)
		}
		return nil
	}, func(path string) error { return f.restoreFile(ctx, path) })
}

func (f *snapshotCache) restoreFile(ctx context.Context, path string) error {
	// Catching up clears it, when the filter has the later orders.
	f.loader.filter.Doubt(filter.Doubt{Reason: "taking over from another ordergate", Recovery: filter.ByOperator})
	info, err := f.loader.filter.ReadSnapshot(ctx, path, f.stamp)
	if err != nil {
		return err
	}
	at, err := f.loader.resume(info.Position)
	if err != nil {
		return err
	}
	err = f.loader.log.ReplayFrom(ctx, at, func(id string) error {
		f.loader.filter.Add(id)
		return nil
	})
	if err != nil {
		f.loader.forget() // the log does not join the snapshot
	}
	return err
}

func (f *snapshotCache) chunk(token string, n int) string {
	return f.prefix + ":" + token + ":" + strconv.Itoa(n)
}

// store writes a snapshot to Redis.
func (f *snapshotCache) store(ctx context.Context) (err error) {
	if err := f.loader.log.Wait(ctx); err != nil {
		return err
	}
	file, err := os.CreateTemp(f.dir, "ordergate-fleet-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	position := f.loader.at() // older than the bits
	info, err := f.loader.filter.WriteSnapshot(ctx, file.Name(), position, f.stamp)
	if err != nil {
		return err
	}
	shared := cachedSnapshot{Token: rand.Text(), Stamp: f.stamp}
	if info.Bytes <= maxCachedBytes {
		if shared.Chunks, err = f.upload(ctx, file.Name(), shared.Token); err != nil {
			return err
		}
	}
	pipe := f.client.TxPipeline()
	pipe.HSet(ctx, f.prefix, "token", shared.Token, "chunks", shared.Chunks, "stamp", shared.Stamp)
	pipe.Expire(ctx, f.prefix, cachedFor-time.Minute) // before the chunks
	_, err = pipe.Exec(ctx)
	return err
}

func (f *snapshotCache) upload(ctx context.Context, path, token string) (chunks int, err error) {
	return upload(path, cacheChunk, func(n int, data []byte) error {
		if err := f.client.Set(ctx, f.chunk(token, n), data, cachedFor).Err(); err != nil {
			return fmt.Errorf("storing a snapshot for the others: %w", err)
		}
		return nil
	})
}

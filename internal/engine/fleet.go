package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
)

const (
	// fleetKeep is how long a snapshot stays in Redis: for those that start at about the
	// same time.
	fleetKeep = 10 * time.Minute
	// fleetChunk keeps Redis from standing still for a long write.
	fleetChunk = 4 << 20
	// mostShared is the largest snapshot that goes through Redis.
	mostShared = 1 << 30
)

// fleet has one ordergate read the sources of a filter, when several start at once:
// the others take its snapshot, through Redis. A nil *fleet does nothing.
type fleet struct {
	unit   *filterUnit
	client redis.UniversalClient
	prefix string // of the keys: without braces, so that a cluster spreads the chunks
	stamp  string // of the sources: how they are read
	dir    string
	turn   func(ctx context.Context) (work context.Context, done func(), err error)
	log    *slog.Logger
}

// sharedSnapshot is what Redis has.
type sharedSnapshot struct {
	Token  string `redis:"token"`
	Chunks int    `redis:"chunks"` // 0: it is too large, each reads the sources
	Stamp  string `redis:"stamp"`
}

func (m *Engine) newFleet(name string, unit *filterUnit) *fleet {
	c, stamp := m.config.Filters[name], unit.stamp(time.Now())
	if c.ShareLoad == nil || !*c.ShareLoad || stamp == "" || unit.logSnapshot != nil || len(unit.live()) != len(unit.sources) {
		return nil
	}
	dir := os.TempDir()
	if c.Snapshot != nil {
		dir = filepath.Dir(c.Snapshot.Path)
	}
	return &fleet{
		unit: unit, client: m.redis, prefix: "ordergate:fleet:" + name, stamp: stamp, dir: dir, log: m.log.With("filter", name),
		turn: func(ctx context.Context) (context.Context, func(), error) {
			work, _, done, err := m.takeTurn(ctx, name, "load")
			return work, done, err
		},
	}
}

// load takes the snapshot of another, or loads and leaves one for others. Whatever goes
// wrong with that is no reason not to load.
func (f *fleet) load(ctx context.Context, load func(context.Context) error) error {
	if f == nil {
		return load(ctx)
	}
	if f.take(ctx) {
		return nil
	}
	f.unit.filter.NoteProgress("waiting for its turn to read the sources: another ordergate may be reading them")
	work, done, err := f.turn(ctx)
	if err != nil {
		f.log.Warn("the sources are read although another ordergate may be reading them", "error", err)
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
		if shared.Chunks > 0 && f.take(ctx) {
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
	if err := f.leave(work); err != nil && ctx.Err() == nil {
		f.log.Warn("other ordergates have to read the sources themselves", "error", err)
	}
	return nil
}

func (f *fleet) found(ctx context.Context) (shared sharedSnapshot, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, keepPlace)
	defer cancel()
	err := f.client.HGetAll(ctx, f.prefix).Scan(&shared)
	return shared, err == nil && shared.Stamp == f.stamp
}

// take reports whether the filter has what another has left. What has come since is read
// from the change log and, before anything is absent, from the tables.
func (f *fleet) take(ctx context.Context) bool {
	shared, ok := f.found(ctx)
	if !ok || shared.Chunks == 0 {
		return false
	}
	err := f.restore(ctx, shared)
	if err != nil && ctx.Err() == nil {
		f.log.Warn("the snapshot that another ordergate left is not used", "error", err)
	}
	return err == nil
}

func (f *fleet) restore(ctx context.Context, shared sharedSnapshot) (err error) {
	file, err := os.CreateTemp(f.dir, "ordergate-fleet-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	for n := range shared.Chunks {
		chunk, err := f.client.Get(ctx, f.chunk(shared.Token, n)).Bytes()
		if err == nil {
			_, err = file.Write(chunk)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("chunk %d of %d: %w", n+1, shared.Chunks, err), file.Close())
		}
	}
	if err := file.Close(); err != nil {
		return err
	}
	// It is cleared by catching up, when the rest is there.
	f.unit.filter.Doubt(filter.Doubt{Reason: "taking over from another ordergate", Recovery: filter.ByOperator})
	info, err := f.unit.filter.ReadSnapshot(ctx, file.Name(), f.stamp)
	if err != nil {
		return err
	}
	at, err := f.unit.resume(info.Position)
	if err != nil {
		return err
	}
	return f.unit.log.ReplayFrom(ctx, at, func(id string) error {
		f.unit.filter.Add(id)
		return nil
	})
}

func (f *fleet) chunk(token string, n int) string {
	return f.prefix + ":" + token + ":" + strconv.Itoa(n)
}

// leave puts a snapshot into Redis.
func (f *fleet) leave(ctx context.Context) (err error) {
	if err := f.unit.log.Wait(ctx); err != nil {
		return err
	}
	file, err := os.CreateTemp(f.dir, "ordergate-fleet-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	position := f.unit.at() // older than the bits
	info, err := f.unit.filter.WriteSnapshot(ctx, file.Name(), position, f.stamp)
	if err != nil {
		return err
	}
	shared := sharedSnapshot{Token: rand.Text(), Stamp: f.stamp}
	if info.Bytes <= mostShared {
		if shared.Chunks, err = f.upload(ctx, file.Name(), shared.Token); err != nil {
			return err
		}
	}
	pipe := f.client.TxPipeline()
	pipe.HSet(ctx, f.prefix, "token", shared.Token, "chunks", shared.Chunks, "stamp", shared.Stamp)
	pipe.Expire(ctx, f.prefix, fleetKeep-time.Minute) // before the chunks
	_, err = pipe.Exec(ctx)
	return err
}

func (f *fleet) upload(ctx context.Context, path, token string) (chunks int, err error) {
	file, err := os.Open(path) // which was replaced by a rename
	if err != nil {
		return 0, err
	}
	defer file.Close() // only read from: nothing to lose
	buf := make([]byte, fleetChunk)
	for ; ; chunks++ {
		n, err := io.ReadFull(file, buf)
		if n > 0 {
			if err := f.client.Set(ctx, f.chunk(token, chunks), buf[:n], fleetKeep).Err(); err != nil {
				return 0, fmt.Errorf("leaving a snapshot: %w", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return chunks, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return chunks + 1, nil
		case err != nil:
			return 0, err
		}
	}
}

package loader

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/filter/snapshot"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// logSnapshotTick is how often each instance checks whether a snapshot is due.
	logSnapshotTick = 10 * time.Second
	// minEntries is the least number of entries for a snapshot: 5 to 7 MB.
	minEntries = 100_000
	// bytesPerEntry bounds the bytes of a snapshot for each entry that it replaces: at a
	// thousand creates a second, 256 kB a second. So a snapshot of 194 MB, of 10^8 IDs, is
	// followed by up to 760,000 entries, of 36 to 50 MB.
	bytesPerEntry = 256
	// logChunk bounds the time of a write, during which Redis serves no other command: it
	// takes a millisecond, and uploadPause follows. A value of 1 MiB and a byte would take
	// 1.25 MiB in Redis: its allocator has four sizes for each doubling.
	logChunk    = 1<<20 - 1<<10
	uploadPause = 20 * time.Millisecond
	// logSnapshotRetry is the least pause after a failed attempt, and logSnapshotShare the
	// least ratio of that pause to the attempt.
	logSnapshotRetry = time.Minute
	logSnapshotShare = 20
	// bridgePause follows a snapshot that could not be loaded for a temporary reason.
	bridgePause = time.Second
	// waivePause is longer than the time until the next attempt.
	waivePause = 5 * time.Second
)

// logSnapshot keeps a snapshot of a filter in Redis, up to which the change log is trimmed. It
// loads the snapshot if the log begins after the last known entry. It serves filters in memory
// without a table, since only the log has their orders. A nil *logSnapshot does nothing.
type logSnapshot struct {
	loader *Loader
	forms  []string                                            // of IDs in the filter
	dir    string                                              // of temporary files
	least  uint64                                              // entries
	stay   int                                                 // entries before its end that remain in the log
	secret func(ctx context.Context) (key [16]byte, err error) // of all instances
	key    [16]byte                                            // of the filter's hashes
	keyed  bool                                                // false: they have no key
	lock   redisset.LeaderLock
	log    *slog.Logger

	taking       sync.Mutex  // held by bridge
	waived       atomic.Bool // an operator guarantees that the sources have the missing orders
	loggedBridge string      // why there is no bridge; guarded by taking
	loggedTrim   string      // why the log was not trimmed
}

// keepsLogSnapshot reports whether a filter's log is trimmed up to a snapshot in Redis.
func (o *Options) keepsLogSnapshot(c config.Filter) bool {
	return o.Redis != nil && o.Config.Redis.Mode != config.RedisEmbedded && c.InRedis() == "" && c.ChangeLog.Keep == 0 &&
		!hasTable(o.Config, c)
}

func (o *Options) newLogSnapshot(name string, c config.Filter, loader *Loader, key [16]byte) *logSnapshot {
	if !o.keepsLogSnapshot(c) {
		return nil
	}
	s := &logSnapshot{
		loader: loader, dir: snapshotDir(c), least: minEntries, stay: changelog.KeepBeforeMark, key: key, keyed: c.Kind != config.FilterExact, log: o.Logger.With("filter", name),
		lock: o.leaderLock(name, workTrim),
		secret: func(ctx context.Context) ([16]byte, error) {
			if c.Secret != "" {
				return key, nil
			}
			return redisset.Secret(ctx, o.Redis, name, key)
		},
	}
	for _, form := range rules.Forms(rules.IDsOf(o.Config, name)) {
		s.forms = append(s.forms, shortSum(form))
	}
	return s
}

// ends is the end of a snapshot in Redis, and the forms of its IDs.
type ends struct {
	changelog.Mark
	Forms []string `json:"forms"`
}

// keep writes a snapshot whenever it is due, and trims the log, until ctx ends.
func (s *logSnapshot) keep(ctx context.Context) {
	if s == nil {
		return
	}
	var failed string
	var notBefore time.Time
	for range wait.Every(ctx, logSnapshotTick) {
		began := time.Now()
		if began.Before(notBefore) {
			continue
		}
		err := s.trim(ctx)
		if err == nil || ctx.Err() != nil {
			failed = ""
			continue
		}
		notBefore = time.Now().Add(max(logSnapshotRetry, logSnapshotShare*time.Since(began)))
		if err.Error() != failed {
			failed = err.Error()
			s.log.Warn("the change log keeps growing: there is no new snapshot of the filter in Redis", "error", err,
				runbook.Trimming.Do("repair what error names; ordergate tries again"))
		}
	}
}

// trim writes a snapshot if one is due, and trims the log.
func (s *logSnapshot) trim(ctx context.Context) error {
	current, due, err := s.due(ctx)
	if err == nil && due {
		current, err = s.renew(ctx)
	}
	if err != nil || current.Token == "" {
		return err
	}
	removed, err := s.loader.log.Trim(ctx, current, s.stay)
	switch {
	case errors.Is(err, changelog.ErrNotTrimmed):
		if err.Error() != s.loggedTrim {
			s.loggedTrim = err.Error()
			s.log.Info("the change log is not trimmed for now", "reason", err)
		}
		return nil
	case err == nil && removed > 0:
		s.log.Info("the change log was trimmed", "entries", removed)
	}
	return err
}

// due returns the current snapshot, and whether a new one is due that this instance can write. It
// ignores a snapshot of another log.
func (s *logSnapshot) due(ctx context.Context) (current changelog.Snapshot, due bool, err error) {
	log := s.loader.log
	mark := log.Mark()
	if mark.Seq == 0 || !s.loader.filter.Loaded() {
		return current, false, nil
	}
	if current, err = log.Snapshot(ctx); err != nil {
		return current, false, err
	}
	wanted := max(s.least, s.loader.filter.SizeBytes()/bytesPerEntry)
	if current.LogID == mark.LogID {
		return current, s.waived.Load() || mark.Seq >= current.Seq+wanted, nil
	}
	first, err := log.First(ctx)
	// A trimmed log needs a snapshot.
	due = first > 1 || mark.Seq >= wanted
	return changelog.Snapshot{}, due && err == nil, err
}

// renew writes a snapshot, unless another instance has written one meanwhile, and returns the
// current one.
func (s *logSnapshot) renew(ctx context.Context) (changelog.Snapshot, error) {
	work, _, done, err := s.lock(ctx)
	if err != nil {
		return changelog.Snapshot{}, err
	}
	defer done()
	current, due, err := s.due(work)
	if err != nil || !due {
		return current, err
	}
	next, err := s.write(work)
	if cause := context.Cause(work); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	return next, err
}

// write writes a snapshot and makes it the current one.
func (s *logSnapshot) write(ctx context.Context) (next changelog.Snapshot, err error) {
	common, err := s.secret(ctx)
	if err == nil && s.keyed && common != s.key {
		err = errors.New("the others have another secret of the hashes: start this one again")
	}
	if err != nil {
		return next, err
	}
	log := s.loader.log
	before, err := log.Snapshot(ctx)
	if err != nil {
		return next, err
	}
	file, err := os.CreateTemp(s.dir, "ordergate-log-*")
	if err != nil {
		return next, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	next = changelog.Snapshot{Mark: log.Mark(), Token: rand.Text()} // older than the bits
	if next.Mark == (changelog.Mark{}) {
		return next, errors.New("the position in the change log is unknown")
	}
	position, _ := json.Marshal(ends{next.Mark, s.forms}) // texts and a number
	info, err := s.loader.filter.WriteSnapshot(ctx, file.Name(), position, "")
	if err != nil {
		return next, err
	}
	if next.Chunks, next.Bytes, err = s.upload(ctx, file.Name(), next.Token); err != nil {
		return next, err
	}
	if err := log.Adopt(ctx, next, before); err != nil {
		return next, err
	}
	s.waived.Store(false)
	s.log.Info("a snapshot of the filter is in Redis", "ids", info.IDs, "bytes", next.Bytes, "entry", next.Seq)
	return next, nil
}

// The encodings of a chunk.
const (
	asItIs   = 0
	deflated = 1
)

func (s *logSnapshot) upload(ctx context.Context, path, token string) (chunks int, sum int64, err error) {
	chunks, err = upload(path, logChunk, func(n int, data []byte) error {
		chunk, err := pack(data)
		if err == nil {
			err = s.loader.log.PutChunk(ctx, token, n, chunk)
		}
		if err != nil {
			return fmt.Errorf("writing a snapshot to Redis: %w", err)
		}
		sum += int64(len(chunk))
		return wait.For(ctx, uploadPause)
	})
	return chunks, sum, err
}

// pack returns a chunk. It compresses data with few set bits.
func pack(data []byte) ([]byte, error) {
	packed := bytes.NewBuffer(make([]byte, 0, len(data)+1))
	packed.WriteByte(deflated)
	w, err := flate.NewWriter(packed, flate.HuffmanOnly)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || packed.Len() <= len(data)-len(data)/16 {
		return packed.Bytes(), err
	}
	return append([]byte{asItIs}, data...), nil
}

// unpack writes the data of a chunk, at most logChunk bytes.
func unpack(w io.Writer, chunk []byte) error {
	switch {
	case len(chunk) > 0 && chunk[0] == asItIs:
		_, err := w.Write(chunk[1:])
		return err
	case len(chunk) > 0 && chunk[0] == deflated:
		_, err := io.Copy(w, io.LimitReader(flate.NewReader(bytes.NewReader(chunk[1:])), logChunk))
		if _, damaged := errors.AsType[flate.CorruptInputError](err); damaged || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %w", errUnusable, err)
		}
		return err
	}
	return fmt.Errorf("%w: a chunk of %d bytes of an unknown kind", errUnusable, len(chunk))
}

// errUnusable is returned for a snapshot in Redis that stays unusable.
var errUnusable = errors.New("the snapshot in Redis is unusable")

// bridge is [changelog.Options.LoadSnapshot]. Without the trimmed entries, filters answer
// Unknown: the log cannot be read until another instance writes a usable snapshot, or an operator
// guarantees that the sources have every order.
func (s *logSnapshot) bridge(ctx context.Context) (changelog.Mark, error) {
	s.taking.Lock()
	defer s.taking.Unlock()
	at, err := s.loadCurrent(ctx)
	if !errors.Is(err, errUnusable) {
		return at, err
	}
	if s.waived.Load() {
		return changelog.Mark{}, nil
	}
	if err.Error() != s.loggedBridge {
		s.loggedBridge = err.Error()
		s.log.Error("nothing counts as absent while trimmed entries of the change log are missing", "reason", err,
			runbook.Trimming.Do("run ordergate load when the sources have every order"))
	}
	_ = wait.For(ctx, bridgePause)
	return changelog.Mark{}, err
}

// loadCurrent loads the current snapshot, and returns its mark; the zero Mark if there never was
// one.
func (s *logSnapshot) loadCurrent(ctx context.Context) (changelog.Mark, error) {
	current, err := s.loader.log.Snapshot(ctx)
	if err != nil {
		return changelog.Mark{}, err
	}
	if current.Token == "" {
		trimmed, err := s.loader.log.WasTrimmed(ctx)
		if err == nil && trimmed {
			err = fmt.Errorf("%w: it is gone", errUnusable)
		}
		return changelog.Mark{}, err
	}
	err = s.merge(ctx, current)
	_, damaged := errors.AsType[*snapshot.DamageError](err)
	_, another := errors.AsType[*snapshot.MismatchError](err)
	switch {
	case err == nil:
		return current.Mark, nil
	case damaged || another:
		err = fmt.Errorf("%w: %w", errUnusable, err)
	case ctx.Err() == nil && !errors.Is(err, errUnusable):
		s.log.Warn("the snapshot in Redis cannot be read yet", "error", err,
			runbook.FilterNotReady.Do("look at Redis and the way to it; ordergate tries again"))
		_ = wait.For(ctx, bridgePause)
	}
	return changelog.Mark{}, err
}

// waive lets the log be read without its trimmed entries, and waits for that. The caller reads
// the sources next.
func (s *logSnapshot) waive(ctx context.Context) {
	if s == nil || s.loader.log.LastRead().After(time.Now().Add(-waivePause)) {
		return // no entry is missing
	}
	s.waived.Store(true)
	ctx, cancel := context.WithTimeout(ctx, waivePause)
	defer cancel()
	for ctx.Err() == nil && s.loader.log.Wait(ctx) != nil {
		_ = wait.For(ctx, 100*time.Millisecond)
	}
}

// merge adds the IDs of a snapshot to the filter.
func (s *logSnapshot) merge(ctx context.Context, from changelog.Snapshot) error {
	return download(s.dir, "ordergate-log-*", from.Chunks, func(n int, to io.Writer) error {
		chunk, err := s.loader.log.Chunk(ctx, from.Token, n)
		switch {
		case errors.Is(err, redis.Nil):
			return fmt.Errorf("%w: chunk %d of %d is gone", errUnusable, n+1, from.Chunks)
		case err != nil:
			return err
		}
		return unpack(to, chunk)
	}, func(path string) error { return s.mergeFile(ctx, path, from.Mark) })
}

func (s *logSnapshot) mergeFile(ctx context.Context, path string, at changelog.Mark) error {
	if err := s.validate(path, at); err != nil {
		return err
	}
	key, err := s.secret(ctx)
	if err != nil {
		return err
	}
	info, err := s.loader.filter.MergeSnapshot(ctx, path, key)
	if err == nil {
		s.log.Info("a snapshot in Redis was read in place of trimmed entries of the change log", "ids", info.IDs, "entry", at.Seq, "took", info.Took)
	}
	return err
}

// validate returns why a file is not usable as a snapshot that ends at a mark. It must have each
// ID in all forms of the rules here.
func (s *logSnapshot) validate(path string, at changelog.Mark) error {
	file, err := snapshot.Inspect(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var e ends
	if err := json.Unmarshal(file.Header().Position, &e); err != nil {
		return fmt.Errorf("%w: its position: %w", errUnusable, err)
	}
	if e.Mark != at {
		return fmt.Errorf("%w: it ends at entry %d, not at %d", errUnusable, e.Seq, at.Seq)
	}
	for _, form := range s.forms {
		if !slices.Contains(e.Forms, form) {
			return fmt.Errorf("%w: since it was written, a rule has got another form of IDs", errUnusable)
		}
	}
	return nil
}

// wait returns when no snapshot is being loaded.
func (s *logSnapshot) wait() {
	if s != nil {
		s.taking.Lock()
		defer s.taking.Unlock()
	}
}

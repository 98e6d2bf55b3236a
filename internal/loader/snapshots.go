package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/snapshot"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// lastSnapshotTimeout bounds the write at the end of the process. Without the snapshot, a
	// restart only reads more of the log.
	lastSnapshotTimeout = 10 * time.Second
	// snapshotTimeout bounds the wait of an operator's snapshot for another one.
	snapshotTimeout = 10 * time.Second
	// refusedSuffix follows the path of an unusable file that is kept.
	refusedSuffix = ".refused"
)

// snapshots writes and restores the snapshot file of one filter. A nil *snapshots does nothing.
type snapshots struct {
	path   string
	every  time.Duration
	filter *filter.Filter
	loader *Loader
	stamp  func(time.Time) string
	log    *slog.Logger
	failed atomic.Uint64

	busy    chan struct{} // of capacity 1: a lock of the fields below
	claim   *snapshot.Claim
	refused bool   // the present file is not ours, or damaged
	sources string // their fingerprint before they were read
	written content

	shown atomic.Pointer[shownSnapshot]
}

// content identifies the content of a snapshot.
type content struct {
	position []byte
	sources  string
	ids      uint64
	memory   uint64
}

func (c content) equal(other content) bool {
	return bytes.Equal(c.position, other.position) && c.sources == other.sources && c.ids == other.ids && c.memory == other.memory
}

// shownSnapshot is the snapshot in the metrics.
type shownSnapshot struct {
	at    time.Time
	bytes uint64
}

// ErrSnapshotBusy is returned while the file is being written or read.
var ErrSnapshotBusy = errors.New("another snapshot is being written, or the filter is being read from it")

func (o *Options) newSnapshots(name string, c config.Filter, loader *Loader) *snapshots {
	if c.Snapshot == nil {
		return nil
	}
	s := &snapshots{
		path: c.Snapshot.Path, every: c.Snapshot.Every, filter: loader.filter, loader: loader,
		stamp: loader.fingerprint,
		log:   o.Logger.With("filter", name, "file", c.Snapshot.Path),
		busy:  make(chan struct{}, 1),
	}
	s.show(time.Now(), 0)
	o.Metrics.SnapshotGauges(name, metrics.Snapshot{
		Age:    func() time.Duration { return time.Since(s.shown.Load().at) },
		Bytes:  func() uint64 { return s.shown.Load().bytes },
		Errors: s.failed.Load,
	})
	return s
}

func (s *snapshots) show(at time.Time, bytes uint64) { s.shown.Store(&shownSnapshot{at, bytes}) }

// restore makes the filter ready from the file, and lets the change log begin at its end. If it
// returns false, the sources have to be read. Call it before the log runs.
func (s *snapshots) restore(ctx context.Context) bool {
	if s == nil {
		return false
	}
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	if err := s.takeClaim(); err != nil {
		s.fail(err)
		s.log.Error("no snapshot can be written for now", "error", err,
			runbook.SnapshotFails.Do("repair what error names; ordergate tries again"))
	}
	sources := s.stamp(time.Now())
	info, err := s.filter.ReadSnapshot(ctx, s.path, sources)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return false
	case errors.Is(err, fs.ErrNotExist):
		s.log.Info("there is no snapshot yet, the sources are read")
		s.restorePart(ctx, sources)
		return false
	case errors.Is(err, filter.ErrSourcesChanged):
		s.log.Info("the snapshot is not used, the sources are read again", "reason", err)
		s.restorePart(ctx, sources)
		return false
	default:
		s.refused = true
		s.log.Warn("the snapshot is refused, the sources are read; it will be kept as "+s.path+refusedSuffix, "reason", err,
			runbook.Snapshots.Do("nothing: ordergate reads the sources, and keeps the file"))
		s.restorePart(ctx, sources)
		return false
	}
	s.sources = sources
	s.written = content{info.Position, sources, info.IDs, s.filter.SizeBytes()}
	s.show(info.Created, info.Bytes)
	if s.loader.log != nil {
		at, err := s.loader.resume(info.Position)
		if err != nil {
			at = changelog.Mark{} // reading the log from its beginning is always correct
		}
		s.loader.log.Resume(at)
	}
	return true
}

// loads notes the state of the sources. Call it before they are read.
func (s *snapshots) loads() {
	if s == nil {
		return
	}
	s.busy <- struct{}{}
	s.sources = s.stamp(time.Now())
	<-s.busy
}

// keep writes the file periodically until ctx ends, and then a last time. Fresh: the filter was
// not restored from the file.
func (s *snapshots) keep(ctx context.Context, fresh bool) {
	if s == nil {
		return
	}
	defer s.release()
	if fresh {
		if s.loader.log != nil {
			// Without a position, a restart reads the log from its beginning, which is correct
			// as well.
			_ = s.loader.log.Wait(ctx)
		}
		s.try(ctx) // the load may have taken long
	}
	for range wait.Every(ctx, s.every) {
		s.try(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSnapshotTimeout)
	defer cancel()
	s.try(ctx)
}

// try writes the file if its content has changed.
func (s *snapshots) try(ctx context.Context) {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	if !s.filter.Loaded() {
		return // the state has the reason
	}
	if stat, err := os.Stat(s.path); err == nil && uint64(stat.Size()) == s.shown.Load().bytes && s.content().equal(s.written) {
		s.show(time.Now(), s.shown.Load().bytes)
		return
	}
	info, err := s.write(ctx)
	switch {
	case err == nil:
		s.log.Debug("snapshot written", "ids", info.IDs, "bytes", info.Bytes, "took", info.Took)
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.log.Error("no snapshot was written, the old one stays", "error", err,
			runbook.SnapshotFails.Do("repair what error names; ordergate tries again"))
	}
}

// now writes the file, after a write in progress: the operator may want the latest IDs.
func (s *snapshots) now(ctx context.Context) (filter.SnapshotInfo, error) {
	wait, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	select {
	case s.busy <- struct{}{}:
	case <-wait.Done():
		return filter.SnapshotInfo{}, ErrSnapshotBusy
	}
	defer func() { <-s.busy }()
	return s.write(ctx)
}

// write writes the file. The caller holds busy.
func (s *snapshots) write(ctx context.Context) (filter.SnapshotInfo, error) {
	content := s.content() // read the position before the bits
	if !s.filter.Loaded() {
		_, reason := s.filter.State()
		return filter.SnapshotInfo{}, fmt.Errorf("%w: %s", filter.ErrNotReady, reason)
	}
	if err := s.prepare(); err != nil {
		s.fail(err)
		return filter.SnapshotInfo{}, err
	}
	info, err := s.filter.WriteSnapshot(ctx, s.path, content.position, content.sources)
	if err != nil {
		s.fail(err)
		return info, err
	}
	s.dropPart()
	s.filter.NoteUnsaved(nil)
	s.written = content
	s.show(time.Now(), info.Bytes)
	return info, nil
}

// fail counts a failed attempt, and shows its error.
func (s *snapshots) fail(err error) {
	s.failed.Add(1)
	s.filter.NoteUnsaved(err)
}

// prepare keeps a valuable file from being overwritten.
func (s *snapshots) prepare() error {
	if s.claim == nil {
		if err := s.takeClaim(); err != nil {
			return err
		}
		// Another process may have written it.
		file, err := s.filter.OpenSnapshot(s.path)
		if err == nil {
			file.Close()
		}
		s.refused = s.refused || err != nil && !errors.Is(err, fs.ErrNotExist)
	}
	if !s.refused {
		return nil
	}
	if info, err := os.Lstat(s.path); err == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
		return fmt.Errorf("%s is not a regular file", s.path) // renaming it could break the machine: /dev/null
	}
	if err := ignore(os.Rename(s.path, s.path+refusedSuffix), fs.ErrNotExist); err != nil {
		return fmt.Errorf("keeping a snapshot that was refused: %w", err)
	}
	s.refused = false
	return nil
}

func (s *snapshots) takeClaim() (err error) {
	s.claim, err = snapshot.NewClaim(s.path)
	return err
}

func (s *snapshots) release() {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	if s.claim != nil {
		s.claim.Release()
		s.claim = nil
	}
}

// content returns the content of a snapshot of now.
func (s *snapshots) content() content {
	c := content{sources: s.sources}
	c.position = s.loader.at()
	c.ids, c.memory = s.filter.CountInMemory(), s.filter.SizeBytes()
	return c
}

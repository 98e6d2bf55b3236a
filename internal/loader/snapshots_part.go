package loader

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// partSuffix follows the path of a snapshot in the path of an incomplete load.
	partSuffix = ".part"
	// partPause is the least time between two writes, and partShare the least ratio of that
	// time to the duration of a write.
	partPause = 2 * time.Second
	partShare = 20
)

// keepParts writes the incomplete load periodically, until the returned function is called. An
// interrupted load continues from there. Only tables need it: files are read again.
func (s *snapshots) keepParts(ctx context.Context) (stop func()) {
	if s == nil || len(s.loader.tables()) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		pause := partPause
		for wait.For(ctx, pause) == nil {
			info, err := s.writePart(ctx)
			if err != nil && ctx.Err() == nil {
				s.log.Warn("the incomplete load could not be written", "error", err,
					runbook.SnapshotFails.Do("repair what error names; ordergate tries again"))
			}
			pause = max(partPause, partShare*info.Took)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

func (s *snapshots) writePart(ctx context.Context) (filter.SnapshotInfo, error) {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	if s.claim == nil {
		return filter.SnapshotInfo{}, nil // the files are another process's
	}
	position := s.loader.at()          // older than the bits
	if s.filter.UntilClearable() > 0 { // a load that continues from there would miss these doubts
		return filter.SnapshotInfo{}, nil
	}
	return s.filter.WritePart(ctx, s.path+partSuffix, position, s.sources)
}

// restorePart restores an interrupted load.
func (s *snapshots) restorePart(ctx context.Context, sources string) {
	path := s.path + partSuffix
	if len(s.loader.tables()) == 0 {
		return
	}
	info, err := s.filter.ReadPart(ctx, path, sources)
	switch {
	case errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil:
		return
	case err != nil:
		s.log.Warn("the interrupted load is not used", "reason", err,
			runbook.Snapshots.Do("nothing: the load begins anew"))
		return
	}
	at, err := s.loader.resume(info.Position)
	if err != nil {
		return // the load reads all of the tables and of the log
	}
	s.loader.log.Resume(at)
	s.log.Info("the load goes on where it was interrupted", "ids", info.IDs, "written", info.Created)
}

// dropPart removes the incomplete load after a whole snapshot.
func (s *snapshots) dropPart() {
	if err := ignore(os.Remove(s.path+partSuffix), fs.ErrNotExist); err != nil {
		s.log.Warn("a file that is no longer needed could not be removed", "error", err,
			runbook.Snapshots.Do("delete the file"))
	}
}

package filter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/snapshot"
)

// SnapshotInfo tells of a snapshot that was written or read.
type SnapshotInfo struct {
	Path     string
	Bytes    uint64 // of the file
	IDs      uint64
	Position []byte // of the change log, as whoever wrote it gave it
	Created  time.Time
	Took     time.Duration // to write or read it
}

var (
	// ErrNotReady says that a filter lacks IDs, or may lack some: a snapshot of it
	// would keep that for good.
	ErrNotReady = errors.New("the filter is not ready")
	// ErrSourcesChanged says that a snapshot is sound, but its sources have to be
	// read again.
	ErrSourcesChanged = errors.New("the sources have changed since, or it cannot be told that they have not")
)

// WriteSnapshot writes what is in memory to a file, in place of the one that is
// there; see [snapshot.Write]. It blocks until the disk has it, and keeps nobody
// waiting meanwhile. Besides the errors of that it returns [ErrNotReady].
//
// Position says where in the change log a reader has to go on. It must have been
// taken before the call, when all entries up to it had been added: what is added
// during the call may or may not be in the file. Sources tells the state that the
// sources were in before they were read from any other; "" if that cannot be told.
func (f *Filter) WriteSnapshot(ctx context.Context, path string, position []byte, sources string) (SnapshotInfo, error) {
	// After the position was taken: what was doubted up to there is doubted by now, or
	// has been cleared.
	if !f.Loaded() {
		_, reason := f.State()
		return SnapshotInfo{}, fmt.Errorf("filter %s: writing a snapshot: %w: %s", f.name, ErrNotReady, reason)
	}
	return f.writeSnapshot(ctx, path, position, sources)
}

// partly stands before what tells the state of the sources of which a part was read.
const partly = "a part of "

// WritePart is WriteSnapshot in the midst of a load: position says as well how far that
// is. Only ReadPart takes the file.
func (f *Filter) WritePart(ctx context.Context, path string, position []byte, sources string) (SnapshotInfo, error) {
	return f.writeSnapshot(ctx, path, position, partly+sources)
}

func (f *Filter) writeSnapshot(ctx context.Context, path string, position []byte, sources string) (SnapshotInfo, error) {
	began := f.opts.Now()
	// What is being rebuilt is left out: everything is added to both until it takes
	// the place of this one.
	sections, ids := sectionsOf(f.memory.current())
	header := snapshot.Header{Identity: f.identity(), Position: position, Sources: sources, Created: began}
	if err := snapshot.Write(ctx, path, header, sections); err != nil {
		return SnapshotInfo{}, fmt.Errorf("filter %s: %w", f.name, err)
	}
	size, err := sizeOf(path)
	if err != nil {
		return SnapshotInfo{}, fmt.Errorf("filter %s: writing snapshot %s: %w", f.name, path, err)
	}
	return SnapshotInfo{path, size, ids, position, began, f.opts.Now().Sub(began)}, nil
}

// NoteUnsaved has State show why there is no snapshot of late; nil: there is one.
func (f *Filter) NoteUnsaved(why error) {
	if why == nil {
		f.snapshotErr.Store(nil)
		return
	}
	f.snapshotErr.Store(&why)
}

// Loaded reports whether the filter has all that it was to be loaded with, so that a
// snapshot of it can be written.
func (f *Filter) Loaded() bool {
	return f.status.Load().state == StateReady && f.doubts.Load() == nil
}

// EverLoaded reports whether the filter had, at one time since the start of this process, all
// that it was to be loaded with.
func (f *Filter) EverLoaded() bool {
	if f.opts.Remote != nil {
		return f.opts.Remote.EverComplete()
	}
	return f.loaded.Load()
}

// CountInMemory returns the number of IDs that a snapshot of now would have.
func (f *Filter) CountInMemory() uint64 { return f.sum((*scalable).count) }

// OpenSnapshot opens a file if it is one of this filter, as [snapshot.Open] does.
func (f *Filter) OpenSnapshot(path string) (*snapshot.Snapshot, error) {
	return snapshot.Open(path, f.identity())
}

func sizeOf(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return uint64(info.Size()), nil
}

// ReadSnapshot makes a filter ready that has not been loaded yet, from a file that
// WriteSnapshot wrote, if that was for the same sources. It blocks until all is read.
// The caller must follow the change log from the position in the file, beginning
// after the call: what of the log was added before is forgotten.
//
// The error says why the file is of no use, and the filter is what it was; besides
// those of [snapshot.Open] and [snapshot.Snapshot.Read] it is ErrSourcesChanged. A
// file of a filter that had grown is taken with the size that this had; days that
// are kept no more are left out.
func (f *Filter) ReadSnapshot(ctx context.Context, path, sources string) (SnapshotInfo, error) {
	info, err := f.readSnapshot(ctx, path, sources)
	if err != nil {
		return info, fmt.Errorf("filter %s: %w", f.name, err)
	}
	if f.setStatus(&status{state: StateReady}) {
		f.log.Info("filter is ready, from its snapshot", "ids", info.IDs, "file", path, "written", info.Created, "took", info.Took)
	}
	return info, nil
}

// ReadPart is ReadSnapshot of what WritePart wrote. The filter is not ready after it,
// but has what the file has.
func (f *Filter) ReadPart(ctx context.Context, path, sources string) (SnapshotInfo, error) {
	info, err := f.readSnapshot(ctx, path, partly+sources)
	if err != nil {
		return info, fmt.Errorf("filter %s: %w", f.name, err)
	}
	return info, nil
}

func (f *Filter) readSnapshot(ctx context.Context, path, sources string) (info SnapshotInfo, err error) {
	f.loadMu.Lock()
	defer f.loadMu.Unlock()
	if f.status.Load().state == StateReady {
		return info, errors.New("reading a snapshot: it was loaded already")
	}
	began := f.opts.Now()
	file, err := f.OpenSnapshot(path)
	if err != nil {
		return info, err
	}
	defer file.Close()
	header := file.Header()
	if sources == "" || sources == partly || header.Sources != sources {
		return info, fmt.Errorf("snapshot %s: %w", path, ErrSourcesChanged)
	}
	next, err := f.newStore()
	if err != nil {
		return info, err
	}
	parts, err := arrange(file, path, next, f.opts.Growth != nil || f.opts.Remote != nil)
	if err != nil {
		return info, err
	}
	if err := f.replaceBy(ctx, next, file, parts); err != nil {
		return info, err
	}
	size, err := sizeOf(path)
	return SnapshotInfo{path, size, countAll(next), header.Position, header.Created, f.opts.Now().Sub(began)}, err
}

// replaceBy fills the next set from a file, and puts it in place of the empty one.
// From begin on whatever is added goes to both. What was learned before is either in
// the log, behind the position of the file, or pending, where it is looked for after
// begin.
func (f *Filter) replaceBy(ctx context.Context, next idStore, file *snapshot.Snapshot, parts []filePart) error {
	f.rebuildMu.Lock() // there can be one next set
	defer f.rebuildMu.Unlock()
	old := f.memory.current()
	f.memory.begin(next)
	if f.opts.Appender == nil && countAll(old) > 0 {
		f.memory.abandon()
		return errors.New("reading a snapshot: IDs were added before, and there is no change log to have them from")
	}
	for _, id := range f.pendingIDs() {
		next.add(id)
	}
	for _, p := range parts {
		if err := file.Read(ctx, p.section, p.into); err != nil {
			f.memory.abandon()
			return err
		}
	}
	f.memory.finish(next)
	return nil
}

// identity says whose a snapshot is.
func (f *Filter) identity() snapshot.Identity {
	o := &f.opts
	id := snapshot.Identity{
		Name: f.name, Kind: "bloom", Capacity: o.Capacity, FalsePositiveRate: o.FalsePositiveRate, Layout: o.Layout,
	}
	if o.Exact {
		id.Kind = "exact" // its bits depend on no key
	} else {
		id.KeyFingerprint = bloom.Params{Key: o.Key}.KeyFingerprint()
	}
	if o.Remote != nil {
		id.Kind += " before a remote set"
	}
	if s := o.Segments; s != nil {
		by := "arrival"
		if s.Day != nil {
			by = "ID"
		}
		id.Kind += fmt.Sprintf(", %d days by the %s", s.Keep, by)
	}
	return id
}

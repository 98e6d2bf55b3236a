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

// SnapshotInfo describes a snapshot that was written or read.
type SnapshotInfo struct {
	Path     string
	Bytes    uint64 // of the file
	IDs      uint64
	Position []byte // in the change log, as given to WriteSnapshot
	Created  time.Time
	Took     time.Duration // to write or read it
}

var (
	// ErrNotReady says that a filter lacks IDs, or may lack some. A snapshot would keep that.
	ErrNotReady = errors.New("the filter is not ready")
	// ErrSourcesChanged says that a snapshot is intact, but its sources have to be read again.
	ErrSourcesChanged = errors.New("the sources have changed since, or may have")
)

// WriteSnapshot writes the content of memory to a file and replaces the old one; see
// [snapshot.Write]. It blocks until the file is on disk, and delays no lookup. Besides the
// errors of that it returns [ErrNotReady].
//
// Position is the position in the change log from which a reader goes on. The caller takes it
// before the call, when all entries up to it have been added. The file may or may not have what
// is added during the call. Sources identifies the state in which the sources were read; "": it
// is unknown.
func (f *Filter) WriteSnapshot(ctx context.Context, path string, position []byte, sources string) (SnapshotInfo, error) {
	// After the position was taken: each doubt up to it has arrived by now, or was cleared.
	if !f.Loaded() {
		_, reason := f.State()
		return SnapshotInfo{}, fmt.Errorf("filter %s: writing a snapshot: %w: %s", f.name, ErrNotReady, reason)
	}
	return f.writeSnapshot(ctx, path, position, sources)
}

// partly is the prefix of a source state of which only a part was read.
const partly = "a part of "

// WritePart is WriteSnapshot during a load: position also states how far the load is. Only
// ReadPart reads the file.
func (f *Filter) WritePart(ctx context.Context, path string, position []byte, sources string) (SnapshotInfo, error) {
	return f.writeSnapshot(ctx, path, position, partly+sources)
}

func (f *Filter) writeSnapshot(ctx context.Context, path string, position []byte, sources string) (SnapshotInfo, error) {
	began := f.opts.Now()
	// The store of a rebuild is left out: until the rebuild ends, every add goes to both.
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

// NoteUnsaved makes State show why the last snapshot failed; nil: it did not.
func (f *Filter) NoteUnsaved(why error) {
	if why == nil {
		f.snapshotErr.Store(nil)
		return
	}
	f.snapshotErr.Store(&why)
}

// Loaded reports whether the filter has everything that it is to be loaded with, so that a
// snapshot can be written.
func (f *Filter) Loaded() bool {
	return f.status.Load().state == StateReady && f.doubts.Load() == nil
}

// EverLoaded reports whether the filter had, once since the start of this process, everything
// that it is to be loaded with.
func (f *Filter) EverLoaded() bool {
	if f.opts.Remote != nil {
		return f.opts.Remote.EverComplete()
	}
	return f.loaded.Load()
}

// CountInMemory returns the number of IDs that a snapshot would have now.
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

// ReadSnapshot makes a filter ready from a file of WriteSnapshot, if that has the same source
// state. The filter must not have been loaded. It blocks until the file is read. The caller
// must then follow the change log from the position in the file. It begins to do so after the
// call: entries that were added before are dropped.
//
// After an error the filter is unchanged. The error is one of [snapshot.Open] and
// [snapshot.Snapshot.Read], or ErrSourcesChanged. A filter that had grown is read with the
// capacity that it had. Dropped days are left out.
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

// ReadPart is ReadSnapshot for a file of WritePart. The filter has its content then, but is not
// ready.
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
		return info, errors.New("reading a snapshot: the filter is loaded already")
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

// replaceBy fills the next store from a file, and replaces the empty one by it. From begin on
// every add goes to both. An ID that was learned before is in the log, behind the position of
// the file, or pending: the pending IDs are read after begin.
func (f *Filter) replaceBy(ctx context.Context, next idStore, file *snapshot.Snapshot, parts []filePart) error {
	f.rebuildMu.Lock() // there is at most one next store
	defer f.rebuildMu.Unlock()
	old := f.memory.current()
	f.memory.begin(next)
	if f.opts.Appender == nil && countAll(old) > 0 {
		f.memory.abandon()
		return errors.New("reading a snapshot: IDs were added before, and there is no change log to read them from")
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

// identity returns the identity of the filter's snapshots.
func (f *Filter) identity() snapshot.Identity {
	o := &f.opts
	id := snapshot.Identity{
		Name: f.name, Kind: "bloom", Capacity: o.Capacity, FalsePositiveRate: o.FalsePositiveRate, Layout: o.Layout,
	}
	if o.Exact {
		id.Kind = "exact" // no key
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

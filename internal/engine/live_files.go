package engine

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter/bloom"
)

// checkFiles checks the directories of sockets and snapshots, and the room for snapshots. A
// directory is writable for the user of this process, who should be that of serve.
func (l *liveCheck) checkFiles() {
	listen := l.config.Listen
	for _, s := range []struct{ key, address string }{
		{"authz", listen.Authz}, {"proc", listen.Proc}, {"http", listen.HTTP}, {"admin", listen.Admin},
	} {
		if path, ok := strings.CutPrefix(s.address, "unix:"); ok {
			l.report("listen."+s.key, checkDirectory(path))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.config.Filters)) {
		f := l.config.Filters[name]
		if f.Snapshot == nil {
			continue
		}
		path := "filters." + name + ".snapshot.path"
		if err := checkDirectory(f.Snapshot.Path); err != nil {
			l.report(path, err)
			continue
		}
		free, known := freeBytes(filepath.Dir(f.Snapshot.Path))
		if old, err := os.Stat(f.Snapshot.Path); err == nil {
			free += uint64(old.Size())
		}
		if known {
			l.report(path, checkRoom(f, free))
		}
	}
}

// checkDirectory returns why no file can be made beside a path. It makes one for a moment.
func checkDirectory(path string) error {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, ".ordergate-check-*")
	if err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			err = e.Err
		}
		return fmt.Errorf("no file can be made in the directory %s: %w", dir, err)
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// checkRoom returns an error if a number of bytes is no room for two snapshots of a full filter: a new one
// is written before the old one is removed.
func checkRoom(f config.Filter, free uint64) error {
	if f.Kind == config.FilterExact {
		return nil // its size depends on the IDs
	}
	size, err := bloom.Params{Capacity: f.Capacity, FalsePositiveRate: f.FalsePositiveRate, Layout: bloom.Layout(f.Layout)}.Size()
	if err != nil {
		return err
	}
	if needed := 2 * size.Bytes; free < needed {
		return fmt.Errorf("the disk has %d MiB free, and two snapshots of the full filter take %d MiB: a new one is written before the old one is removed", free>>20, needed>>20)
	}
	return nil
}

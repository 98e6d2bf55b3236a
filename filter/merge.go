package filter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/snapshot"
)

// MergeSnapshot adds the content of a file that another process wrote by WriteSnapshot, of a
// filter of the same name. It may be called at any time, and changes no state. It waits for a
// rebuild. Capacity, rate, layout, days and exactness may differ: content that does not fit the
// present bits becomes a layer beside them. Keys are further keys that the file may have been
// written with, besides the filter's own. The error is one of [snapshot.Inspect] and
// [snapshot.Snapshot.Read], or a [*snapshot.MismatchError]; what was added by then stays.
func (f *Filter) MergeSnapshot(ctx context.Context, path string, keys ...[16]byte) (info SnapshotInfo, err error) {
	began := f.opts.Now()
	file, err := snapshot.Inspect(path)
	if err != nil {
		return info, fmt.Errorf("filter %s: %w", f.name, err)
	}
	defer file.Close()
	header := file.Header()
	if header.Name != f.name {
		return info, fmt.Errorf("filter %s: %w", f.name,
			&snapshot.MismatchError{Path: path, Field: "name", Has: strconv.Quote(header.Name), Want: strconv.Quote(f.name)})
	}
	f.rebuildMu.Lock() // a rebuild would replace these bits
	defer f.rebuildMu.Unlock()
	keys, fits := append(slices.Clone(keys), f.opts.Key), make(map[*scalable]bool)
	for i, section := range file.Sections() {
		part, _, _ := strings.Cut(section.Label, "/")
		s, err := f.partNamed(part)
		if err == nil && s != nil {
			err = s.merge(ctx, file, i, keys, fits)
		}
		if err != nil {
			return info, fmt.Errorf("filter %s: %w", f.name, err)
		}
		info.IDs += section.Count
	}
	info.Path, info.Position, info.Created, info.Took = path, header.Position, header.Created, f.opts.Now().Sub(began)
	info.Bytes, err = sizeOf(path)
	return info, err
}

// partNamed returns the part for IDs of a section; nil: they are of a dropped day.
func (f *Filter) partNamed(part string) (*scalable, error) {
	switch h := f.memory.current().(type) {
	case *days:
		return h.partNamed(part)
	case *scalable:
		return h, nil
	}
	return nil, fmt.Errorf("no part %q", part)
}

// merge adds a section of a file to the layer of the same parameters, or as one more layer.
// That layer comes last, and takes new IDs, if another section of the file fitted.
func (s *scalable) merge(ctx context.Context, file *snapshot.Snapshot, i int, keys [][16]byte, fits map[*scalable]bool) error {
	info := file.Sections()[i]
	at := slices.IndexFunc(keys, func(key [16]byte) bool {
		return info.Exact || bloom.Params{Key: key}.KeyFingerprint() == info.KeyFingerprint
	})
	key := keys[max(at, 0)]
	if at < 0 {
		_, err := file.New(i, key)
		return err
	}
	info.Params.Key = key
	for _, l := range *s.layers.Load() {
		switch l := l.(type) {
		case *bloom.Filter:
			if !info.Exact && l.Params() == info.Params {
				fits[s] = true
				return file.Read(ctx, i, snapshot.Section{Bloom: l})
			}
		case *exactBits:
			if info.Exact {
				return file.Read(ctx, i, snapshot.Section{Exact: l.set})
			}
		}
	}
	into, err := file.New(i, key)
	if err == nil {
		err = file.Read(ctx, i, into)
	}
	if err != nil {
		return err
	}
	var more bits = into.Bloom
	if info.Exact {
		more = &exactBits{set: into.Exact}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append([]bits{more}, *s.layers.Load()...)
	if fits[s] {
		all = append(all[1:], more)
	}
	s.layers.Store(&all)
	return nil
}

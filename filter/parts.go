package filter

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/snapshot"
)

// A section of a snapshot is a layer of a part. Its label is "<part>/<layer>". Layers count
// from 0. Parts are days, written yyyymmdd, or one of these.
const (
	partAll      = "all"   // of a filter without segments
	partOverflow = "stray" // IDs without a day, or of other days
)

const dayLayout = "20060102"

// sectionsOf returns the sections of a store, and the number of IDs. Days and layers that are
// created later only have later IDs.
func sectionsOf(h idStore) (sections []snapshot.Section, ids uint64) {
	add := func(part string, s *scalable) {
		for i, l := range *s.layers.Load() {
			section := snapshot.Section{Label: part + "/" + strconv.Itoa(i)}
			switch l := l.(type) {
			case *bloom.Filter:
				section.Bloom = l
			case *exactBits:
				section.Exact = l.set
			}
			sections = append(sections, section)
			ids += l.Count()
		}
	}
	switch h := h.(type) {
	case *scalable:
		add(partAll, h)
	case *days:
		v := h.view.Load()
		for i, s := range v.parts {
			if s != nil {
				add((v.graceDay() + Day(i)).String(), s)
			}
		}
		if v.overflow != nil {
			add(partOverflow, v.overflow)
		}
	}
	return sections, ids
}

// filePart is a section of a file and its destination.
type filePart struct {
	section int
	into    snapshot.Section
}

// arrange creates the parts and layers of a file in an empty store that is not in use. It
// creates them by this filter's options, and a difference in the file is an error. Only the
// size may differ, if the filter can grow. Dropped days are not among the parts.
func arrange(file *snapshot.Snapshot, path string, empty idStore, grows bool) (parts []filePart, err error) {
	mismatch := func(i int, field, has, want string) error {
		return &snapshot.MismatchError{Path: path, Field: fmt.Sprintf("section %d: %s", i, field), Has: has, Want: want}
	}
	layers, made := make(map[*scalable][]bits), []*scalable{}
	for i, info := range file.Sections() {
		part, layer, _ := strings.Cut(info.Label, "/")
		s, err := partOf(empty, part)
		if err != nil {
			return nil, mismatch(i, "label", strconv.Quote(info.Label), err.Error())
		}
		if s == nil {
			continue
		}
		if layers[s] == nil {
			made = append(made, s)
		}
		if number := strconv.Itoa(len(layers[s])); layer != number {
			return nil, mismatch(i, "layer", strconv.Quote(layer), number)
		}
		first := (*s.layers.Load())[0]
		capacity := info.Params.Capacity
		if info.Exact {
			capacity = first.Capacity()
		}
		l, err := s.makeLayer(len(layers[s]), capacity)
		if err != nil {
			return nil, err
		}
		into := snapshot.Section{Label: info.Label}
		switch l := l.(type) {
		case *bloom.Filter:
			into.Bloom = l
			if has, want := info.Params.FalsePositiveRate, l.Params().FalsePositiveRate; !info.Exact && has != want {
				return nil, mismatch(i, "false positive rate", fmt.Sprint(has), fmt.Sprint(want))
			}
		case *exactBits:
			into.Exact = l.set
		}
		if (into.Exact != nil) != info.Exact {
			return nil, mismatch(i, "an exact set", fmt.Sprint(info.Exact), fmt.Sprint(!info.Exact))
		}
		layers[s] = append(layers[s], l)
		parts = append(parts, filePart{i, into})
	}
	if s, ok := empty.(*scalable); ok && layers[s] == nil {
		return nil, &snapshot.MismatchError{Path: path, Field: "number of sections", Has: "0", Want: "1 at least"}
	}
	for _, s := range made {
		want, all := s.capacity(), layers[s]
		s.layers.Store(&all)
		if has := s.capacity(); has < want || has > want && !grows {
			return nil, &snapshot.MismatchError{Path: path, Field: "capacity of " + s.name, Has: fmt.Sprint(has), Want: fmt.Sprint(want)}
		}
	}
	return parts, nil
}

// partOf returns the part of that name, and creates it if necessary; nil for a dropped day. The
// error states what is expected.
func partOf(h idStore, part string) (*scalable, error) {
	d, ok := h.(*days)
	if !ok {
		if part != partAll {
			return nil, fmt.Errorf("%q", partAll)
		}
		return h.(*scalable), nil
	}
	if part != partOverflow {
		t, err := time.Parse(dayLayout, part)
		if err != nil {
			return nil, fmt.Errorf("a day or %q", partOverflow)
		}
		if tomorrow := d.view.Load().today + 1; DayOf(t) > tomorrow {
			return nil, fmt.Errorf("no day after %s, tomorrow by the clock", tomorrow)
		}
	}
	return d.partNamed(part)
}

package filter

// Info describes a filter for an operator.
type Info struct {
	State, Reason     string
	IDs, Capacity     uint64
	MemoryBytes       uint64 // of this process
	RemoteBytes       uint64 // of a [Remote]
	FillRatio         float64
	FalsePositiveRate float64 // estimated, of all segments together
	Pending           int     // writes that wait for a retry
	Segments          []SegmentInfo
	Expansion         Expansion // of memory; a Remote has another one
}

// SegmentInfo describes one day in memory, or all of memory if there are no days.
type SegmentInfo struct {
	Name              string
	IDs, Capacity     uint64
	Bytes             uint64
	Layers            int
	FillRatio         float64 // of the fullest layer
	FalsePositiveRate float64
}

// Info returns a description of the filter. It reads all of its memory, as
// EstimatedFalsePositiveRate does.
func (f *Filter) Info() Info {
	info := Info{
		IDs: f.Count(), Capacity: f.Capacity(), MemoryBytes: f.SizeBytes(), Pending: f.Pending(), Expansion: f.Expansion(),
	}
	info.State, info.Reason = f.State()
	stopped := 1.0
	for _, s := range f.memory.current().parts() {
		layers := *s.layers.Load()
		seg := SegmentInfo{
			Name: s.name, IDs: s.count(), Capacity: s.capacity(), Bytes: s.sizeBytes(), Layers: len(layers), FalsePositiveRate: s.rate(),
		}
		for _, l := range layers {
			seg.FillRatio = max(seg.FillRatio, l.FillRatio())
		}
		info.FillRatio = max(info.FillRatio, seg.FillRatio)
		stopped *= 1 - seg.FalsePositiveRate
		info.Segments = append(info.Segments, seg)
	}
	if f.opts.Remote != nil {
		size := f.opts.Remote.Size()
		info.RemoteBytes, info.FillRatio = size.Bytes, size.FillRatio
		stopped *= 1 - size.FalsePositiveRate
	}
	info.FalsePositiveRate = 1 - stopped
	return info
}

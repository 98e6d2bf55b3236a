package config

func (v *validator) layout(path string, f Filter) {
	if f.Kind == FilterLocal {
		v.choice(path+".layout", f.Layout, LayoutBlocked, LayoutClassic)
	} else if f.Layout != "" {
		v.refute(path+".layout", "is for kind %s only: remove it", FilterLocal)
	}
}

// maxKeep is ten years, as in package filter.
const maxKeep = 3660

func (v *validator) segments(path, name string, s *Segments) {
	if s == nil {
		return
	}
	v.choice(path+".by", s.By, SegmentDay)
	v.choice(path+".from", s.From, SegmentFromID, SegmentFromArrival)
	v.choice(path+".older", s.Older, OlderUnknown, OlderAbsent)
	between(v, path+".keep", s.Keep, 1, maxKeep)
	switch {
	case s.From == SegmentFromArrival && s.Older == OlderUnknown:
		v.refute(path+".older", "an order that was forgotten cannot be told from one that never was: "+
			"accept that by older: absent, or have the ID tell its day (from: id)")
	case s.From == SegmentFromID:
		v.dated(path+".from", name)
	}
}

// dated checks that all IDs of a filter tell their day.
func (v *validator) dated(path, filter string) {
	for _, r := range v.config.Rules {
		if (r.Lookup == nil || r.Lookup.Filter != filter) && (r.Create == nil || r.Create.Filter != filter) {
			continue
		}
		for _, id := range r.IDs {
			if id.Format != FormatTimestamped && id.Format != FormatSnowflake {
				v.refute(path, "the IDs of rule %s have format %s, which has no date: give them format %s or %s, or write from: %s",
					quote(r.Name), id.Format, FormatTimestamped, FormatSnowflake, SegmentFromArrival)
				return
			}
		}
	}
}

func (v *validator) expand(path string, f Filter) {
	e := f.Expand
	if e == nil {
		return
	}
	if f.Kind == FilterExact {
		v.refute(path, "a filter of kind %s has no size that it could outgrow: remove this", FilterExact)
		return
	}
	between(v, path+".at_fill", e.AtFill, 0.1, 1)
	between(v, path+".by", e.By, 1.1, 16)
	v.choice(path+".how", e.How, ExpandRebuild, ExpandLayers)
	if e.How == ExpandRebuild && f.Segments != nil {
		v.refute(path+".how", "segments grow by layers, each for itself: remove this, or write %s", ExpandLayers)
	}
}

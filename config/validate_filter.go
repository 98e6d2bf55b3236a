package config

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxCapacity is 10^11 IDs. At ten bits an ID that is a terabit, more than one process holds.
const maxCapacity = 100_000_000_000

func (v *validator) filter(path, name string, f Filter) {
	v.freshness(path+".freshness", f)
	v.inRedis(path, f)
	switch s, at := f.Segments, path+".segments"; {
	case s == nil:
	case s.From == SegmentFromArrival && s.Older == OlderUnknown:
		v.reject(at+".older", "a dropped order cannot be distinguished from an order that never existed: "+
			"accept that by older: absent, or take the day from the ID (from: id)")
	case s.From == SegmentFromID:
		v.haveDates(at+".from", name, "write from: "+SegmentFromArrival)
	}
	v.expand(path+".expand", f)
	v.changeLog(path+".change_log.keep", f)
	if f.dropsOrders() && f.Verify != VerifyOff {
		v.reject(path+".verify", "the filter refuses orders of dropped days (segments.older: %s), which would be found: remove this, or write %s", OlderAbsent, VerifyOff)
	}
	if f.Reconcile != nil {
		v.needsTable(path+".reconcile", f, "there is no table among the sources to compare the filter with: add one, or remove this")
	}
	if f.InRedis() != "" && f.ShareLoad != nil && *f.ShareLoad {
		v.reject(path+".share_load", "is for kinds in memory only, since a filter in Redis is shared already: remove it")
	}
	if v.config.hasFeed(f) && !slices.ContainsFunc(f.Sources, func(name string) bool { return !v.config.Sources[name].Feed() }) {
		v.reject(path+".sources", "has only topics, which never have all orders: name the table of the orders too, or a file")
	}
}

// inRedis checks the keys that are for the kinds in Redis.
func (v *validator) inRedis(path string, f Filter) {
	kind := f.InRedis()
	if kind == "" {
		if f.Shards > 1 {
			v.reject(path+".shards", "is for kinds in Redis only: remove it")
		}
		return
	}
	if kind == FilterRedisson && f.Elements == ElementsLong {
		if f.Codec == CodecString {
			v.reject(path+".elements", "StringCodec writes a Long as its text: remove this")
		}
		if len(f.Parts) > 0 {
			v.reject(path+".elements", "an ID with parts is no Long: remove this")
		}
	}
	switch {
	case kind == FilterRedisson && f.Segments != nil:
		v.reject(path+".segments", "Java services have one filter of kind %s: remove this", FilterRedisson)
	case kind == FilterRedisson && f.Shards > 1:
		v.reject(path+".shards", "a filter of kind %s has no shards: remove this", FilterRedisson)
	case kind != FilterRedisson && strings.ContainsAny(f.KeyPrefix, "{}"):
		v.reject(path+".key_prefix", "has braces, which would put all shards in one slot: remove them")
	}
	if f.Segments != nil && f.Segments.From == SegmentFromArrival && len(f.Sources) > 0 {
		v.reject(path+".sources", "all IDs of a source would belong to the day of reading: remove this, or take the day from the ID (from: id)")
	}
	if v.config.Redis != nil && v.config.Redis.Mode == RedisEmbedded {
		v.reject(path+".kind", "%s needs a Redis server: mode %s has no such commands", f.Kind, RedisEmbedded)
	}
}

// filtersDiffer checks that no two filters share a key prefix in Redis or a snapshot file.
func (v *validator) filtersDiffer(c *Config) {
	owners := make(map[string]string)
	for _, name := range sortedKeys(c.Filters) {
		f := c.Filters[name]
		differ := func(key, value string) {
			if other, taken := owners[key+value]; taken {
				v.reject(join("filters", name)+key, "filter %s has the same: choose another", quote(other))
				return
			}
			owners[key+value] = name
		}
		if f.InRedis() != "" {
			differ(".key_prefix", f.KeyPrefix)
		}
		if f.Snapshot != nil && f.Snapshot.Path != "" {
			differ(".snapshot.path", f.Snapshot.Path)
		}
	}
}

// haveDates checks that all IDs of a filter contain their date, and returns the result.
func (v *validator) haveDates(path, filter, instead string) bool {
	for rule, id := range v.idsOf(filter) {
		if id.Format != FormatTimestamped && id.Format != FormatSnowflake {
			v.reject(path, "the IDs of rule %s have format %s, which has no date: give them format %s or %s, or %s",
				quote(rule), id.Format, FormatTimestamped, FormatSnowflake, instead)
			return false
		}
	}
	return true
}

// idsOf yields the names and IDs of the rules that look up or create orders in a filter.
func (v *validator) idsOf(filter string) iter.Seq2[string, ID] {
	return func(yield func(string, ID) bool) {
		for _, r := range v.config.Rules {
			if (r.Lookup == nil || r.Lookup.Filter != filter) && (r.Create == nil || r.Create.Filter != filter) {
				continue
			}
			for _, id := range r.IDs {
				if !yield(r.Name, id) {
					return
				}
			}
		}
	}
}

func (v *validator) expand(path string, f Filter) {
	e := f.Expand
	if e == nil {
		return
	}
	switch {
	case f.Kind == FilterExact || f.Kind == FilterRedisson:
		return
	case f.InRedis() == FilterRedisson:
		v.reject(path, "Java services would go on using the old filter of kind %s: remove this", FilterRedisson)
		return
	case f.InRedis() != "" && e.How == ExpandLayers:
		v.reject(path+".how", "a filter in Redis is rebuilt, from its sources and the change log: remove this, or write %s", ExpandRebuild)
	}
	if f.Capacity <= maxCapacity && (e.Max < f.Capacity || e.Max > maxCapacity) {
		v.reject(path+".max", "%s is out of range: %s, the capacity, to %s are allowed", number(e.Max), number(f.Capacity), number(uint64(maxCapacity)))
	}
	switch {
	case f.Segments == nil || e.How != ExpandRebuild:
	case f.InRedis() != "" && f.Segments.From == SegmentFromArrival:
		v.reject(path, "all IDs that are read again would belong to the day of reading: remove this, or take the day from the ID (from: id)")
	case f.InRedis() == "":
		v.reject(path+".how", "segments grow by layers, each for itself: remove this, or write %s", ExpandLayers)
	}
}

// Values of the key verify.
const (
	DefaultVerify = "1/10000"
	VerifyOff     = "off"
)

// VerifyOneIn returns n if one in n refused lookups is verified, 0 if none is.
func (f *Filter) VerifyOneIn() int {
	_, n, _ := strings.Cut(f.Verify, "/")
	oneIn, _ := strconv.Atoi(n) // 0 for off
	return oneIn
}

// dropsOrders reports whether the filter refuses orders that exist, since they are too old.
func (f *Filter) dropsOrders() bool { return f.Segments != nil && f.Segments.Older == OlderAbsent }

// Bounds of the entries that a trimmed change log keeps. The minimum covers the entries added
// while an instance is briefly disconnected. The maximum fills a large server.
const (
	minKeep        = 10_000
	maxKeepEntries = 1_000_000_000
)

// minExpel is the least time without a renewal after which a member may be expelled.
const minExpel = 10 * time.Second

func (v *validator) changeLog(path string, f Filter) {
	switch keep := f.ChangeLog.Keep; {
	case keep == 0:
	case keep < minKeep || keep > maxKeepEntries:
		v.reject(path, "%d is out of range: %s to %s are allowed, or 0, which keeps all", keep, number(uint64(minKeep)), number(uint64(maxKeepEntries)))
	default:
		v.needsTable(path, f, "without a table among the sources, trimmed orders could not be read again: remove this")
	}
}

// needsTable rejects a key that needs a table among the filter's sources. It reports nothing if
// a source is undefined or of an unknown kind, since the user may mean a table.
func (v *validator) needsTable(path string, f Filter, message string) {
	if v.config.hasTable(f) {
		return
	}
	for _, name := range f.Sources {
		if s, defined := v.config.Sources[name]; !defined || s.Kind != SourceCSV && !s.Feed() {
			return // another check reports that source
		}
	}
	v.reject(path, "%s", message)
}

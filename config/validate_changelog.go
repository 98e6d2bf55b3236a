package config

import "time"

// Bounds of the entries that a trimmed change log keeps. The minimum covers the entries added
// while an instance is briefly disconnected. The maximum fills a large server.
const (
	minKeep        = 10_000
	maxKeepEntries = 1_000_000_000
)

// minExpel is the least time without a renewal after which a member may be expelled.
const minExpel = 10 * time.Second

func (v *validator) changeLog(path string, f Filter) {
	l, keep := f.ChangeLog, path+".keep"
	switch {
	case l.Keep == 0:
	case l.Keep < minKeep || l.Keep > maxKeepEntries:
		v.reject(keep, "%d is out of range: %s to %s are allowed, or 0, which keeps all", l.Keep, number(uint64(minKeep)), number(uint64(maxKeepEntries)))
	default:
		v.needsTable(keep, f, "without a table among the sources, trimmed orders could not be read again: remove this")
	}
}

func (v *validator) reconcile(path string, f Filter) {
	if f.Reconcile != nil {
		v.needsTable(path, f, "there is no table among the sources to compare the filter with: add one, or remove this")
	}
}

func (v *validator) shareLoad(path string, f Filter) {
	if kind := f.InRedis(); kind != "" && f.ShareLoad != nil && *f.ShareLoad {
		v.reject(path, "is for kinds in memory only, since a filter in Redis is shared already: remove it")
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

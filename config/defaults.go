package config

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// EnsureDefaults sets every field that has its zero value to its default. It also sets the
// listeners: a caller empties those that it does not want afterwards. It changes c and is not
// safe for concurrent use. [Load] calls it too, and keeps a zero that the file gives.
func (c *Config) EnsureDefaults() { c.ensureDefaults(newDocument("")) }

// fill sets the value of a key that is zero and that is not among those that the file gives.
func fill[T any](given map[string]any, key string, value *T, byDefault T) {
	if _, has := given[key]; !has && reflect.ValueOf(value).Elem().IsZero() {
		*value = byDefault
	}
}

// ensureDefaults sets the declared defaults, and then those that depend on other keys.
func (c *Config) ensureDefaults(doc *document) {
	if c.Redis == nil && c.needsRedis() {
		c.Redis = &Redis{}
	}
	rules := c.Rules
	c.Rules = nil // below, many at once
	doc.fill("", reflect.ValueOf(c).Elem())
	c.Rules = rules
	for name, s := range c.Sources {
		s.ensureDefaults(doc, join("sources", name), name)
		c.Sources[name] = s
	}
	if r := c.Redis; r != nil && r.Mode == RedisSingle {
		fill(doc.mappings["redis"], "addresses", &r.Addresses, []string{"127.0.0.1:6379"})
	}
	for name, f := range c.Filters {
		f.ensureDefaults(doc, join("filters", name), name, c)
		c.Filters[name] = f
	}
	for name, l := range c.Locks {
		l.ensureDefaults(doc, join("locks", name), c.IsBy(name))
		c.Locks[name] = l
	}
	doc.beside(c.ofRules(func(d *document, path string, r *Rule) {
		d.fill(path, reflect.ValueOf(r).Elem())
		r.ensureDefaults(d, path, c)
	}))
	c.completeForget()
	doc.uses = c.lockUses()
	for i := range c.Rules {
		c.Rules[i].names = c.partOrder(&c.Rules[i], doc.uses)
	}
}

// hasFrontControllers reports whether the backend may be written in PHP.
func hasFrontControllers(backend string) bool {
	return backend == BackendStrict || backend == BackendPHP
}

// needsRedis reports whether c needs Redis: for locks, for a change log, or for the state that
// ordergates share there.
func (c *Config) needsRedis() bool {
	for _, f := range c.Filters {
		if f.needsRedis() {
			return true
		}
	}
	for _, s := range c.Sources {
		if s.Feed() || s.Follow != "" && s.Follow != FollowNone {
			return true // its orders are appended to the change log
		}
	}
	for _, r := range c.Rules {
		if r.Create != nil || r.Once != nil || r.Settle != nil && r.Settle.asksRedis() {
			return true
		}
	}
	for _, l := range c.Locks {
		if l.Kind != LockQuorum { // a quorum has servers of its own
			return true
		}
	}
	return false
}

func (f Filter) needsRedis() bool {
	return f.Freshness.Mode == FreshnessWindow || f.Kind == FilterLayered || f.InRedis() != "" || f.Reconcile != nil || f.ShareLoad != nil && *f.ShareLoad
}

// hasTable reports whether a filter has a table among its sources.
func (c *Config) hasTable(f Filter) bool {
	return slices.ContainsFunc(f.Sources, func(name string) bool { return c.Sources[name].Live() })
}

// hasFeed reports whether a filter has a topic among its sources, whose place Redis has.
func (c *Config) hasFeed(f Filter) bool {
	return slices.ContainsFunc(f.Sources, func(name string) bool { return c.Sources[name].Feed() })
}

// mostTimes bounds a filter's growth by default, as a multiple of its capacity: six expansions by
// 1.5. Larger growth is either a mistake in the capacity, which an operator should see, or a flood.
const mostTimes = 16

func (f *Filter) ensureDefaults(doc *document, path, name string, c *Config) {
	given := doc.mappings[path]
	freshness := Freshness{Mode: FreshnessNone}
	if c.Redis != nil {
		freshness = Freshness{Mode: FreshnessWindow, Window: DefaultWindow}
	}
	fill(given, "freshness", &f.Freshness, freshness)
	if f.Freshness.Mode == FreshnessWindow && !doc.given(path+".freshness") { // made in Go
		fill(doc.mappings[path+".freshness"], "window", &f.Freshness.Window, DefaultWindow)
	}
	if f.InRedis() != "" {
		fill(given, "shards", &f.Shards, 1)
		fill(given, "key_prefix", &f.KeyPrefix, "order:bloom:"+name)
	}
	if e := f.Expand; e != nil {
		how := ExpandLayers
		if f.InRedis() != "" || len(f.Sources) > 0 && f.Segments == nil {
			how = ExpandRebuild
		}
		fill(doc.mappings[path+".expand"], "how", &e.How, how)
		fill(doc.mappings[path+".expand"], "max", &e.Max, min(mostTimes*f.Capacity, maxCapacity))
	}
	verify := DefaultVerify
	if f.dropsOrders() {
		verify = VerifyOff
	}
	fill(given, "verify", &f.Verify, verify)
	withTable, keep := c.hasTable(*f), 0
	if byArrival := f.Segments != nil && f.Segments.From == SegmentFromArrival; withTable && !byArrival {
		keep = 100_000
	}
	fill(doc.mappings[path+".change_log"], "keep", &f.ChangeLog.Keep, keep)
	share := c.Redis != nil && withTable && f.InRedis() == ""
	fill(given, "share_load", &f.ShareLoad, &share)
}

func (s *Source) ensureDefaults(doc *document, path, name string) {
	given := doc.mappings[path]
	if s.Live() {
		fill(given, "cursor_column", &s.CursorColumn, s.IDColumn)
	}
	if s.Follow == FollowLogical {
		object := "ordergate_" + strings.ReplaceAll(name, "-", "_")
		fill(given, "slot", &s.Slot, object)
		fill(given, "publication", &s.Publication, object)
	}
}

// leastFence is the default time to live of a lock's last fence. ordergate's fences follow the
// clock of Redis, so they need the last fence only for as long as that clock may be set back. A
// settlement of an order that does not exist leaves one too, while the filter cannot refuse it.
const leastFence = 24 * time.Hour

func (l *Lock) ensureDefaults(doc *document, path string, ofTokens bool) {
	given := doc.mappings[path]
	l.Wait.ensureDefaults(doc, path+".wait", 3)
	fill(doc.mappings[path+".on_unknown_outcome"], "hold", &l.OnUnknownOutcome.Hold, l.Lease)
	life := leastFence
	if ofTokens {
		life = l.fenceOfTokens()
	}
	fill(given, "keep_fence", &l.KeepFence, life)
}

func (w *Wait) ensureDefaults(doc *document, path string, tries int) {
	if given := doc.mappings[path]; w.UpTo == 0 && !doc.given(path+".up_to") {
		fill(given, "tries", &w.Tries, tries)
		fill(given, "every", &w.Every, 100*time.Millisecond)
	}
}

func (r *Rule) ensureDefaults(doc *document, path string, c *Config) {
	given := doc.mappings[path]
	r.Mode.ensureDefaults(doc, path)
	fill(given, "backend", &r.Backend, c.Backend)
	if hasFrontControllers(r.Backend) {
		scripts := c.FrontControllers
		fill(doc.mappings[""], "front_controllers", &scripts, []string{"/index.php", "/"})
		fill(given, "front_controllers", &r.FrontControllers, scripts)
	}
	if !r.Pass {
		fill(given, "answer", &r.Answer, c.Answer)
	}
	others := OtherMethodsPass
	if r.Settle != nil || r.requiresKey() {
		others = OtherMethodsRefuse
	}
	fill(doc.mappings[path+".match"], "other_methods", &r.Match.OtherMethods, others)
	if r.Create != nil && !r.Create.Learn.Table && len(r.IDs) == 0 && !doc.given(path+".id") {
		r.IDs = []ID{{Format: FormatDigits}} // has the format of the ID in the answer
	}
	for i := range r.IDs {
		r.IDs[i].ensureDefaults(doc, doc.idPath(path, i, len(r.IDs)))
	}
	for name, part := range r.Parts {
		part.ensureDefaults(doc, join(path+".parts", name))
		r.Parts[name] = part
	}
	if r.readsJSON() {
		untyped := WithoutTypeAccept
		if r.Backend == BackendStrict {
			untyped = WithoutTypeRefuse
		}
		fill(given, "json_without_type", &r.JSONWithoutType, untyped)
	}
	if !r.Pass {
		r.Invalid.ensureDefaults(doc, path+".invalid", Reply{Status: http.StatusBadRequest})
	}
	if create := r.Create; create != nil && create.Once != nil && len(create.Once.By) == 0 {
		create.Once.By = OnceParts{OnceIdempotencyKey}
	}
	if o, at := r.ByOrder(); o != nil {
		o.ensureDefaults(doc, join(path, at), r, false)
	}
	if o, at := r.ByKey(); o != nil {
		o.ensureDefaults(doc, join(path, at), r, true)
	}
	if s := r.Settle; s != nil {
		fill(doc.mappings[path+".settle"], "max_in_flight_per_client", &s.MaxInFlightPerClient, (s.MaxInFlight+1)/2)
		if s.Limit != nil {
			s.Limit.ID.ensureDefaults(doc, path+".settle.limit.id")
		}
	}
}

// readsJSON reports whether the rule reads an ID from JSON.
func (r *Rule) readsJSON() bool {
	inJSON := func(id ID) bool { return id.JSON != "" }
	for _, part := range r.Parts {
		if inJSON(part) {
			return true
		}
	}
	if r.Settle != nil && slices.ContainsFunc(r.Settle.By, func(p Place) bool { return p.JSON != "" }) {
		return true
	}
	return slices.ContainsFunc(r.IDs, inJSON) || r.Settle != nil && r.Settle.Limit != nil && inJSON(r.Settle.Limit.ID)
}

// ensureDefaults sets no lengths for a UUID, since all UUIDs have the same length.
func (id *ID) ensureDefaults(doc *document, path string) {
	given := doc.mappings[path]
	longest := 19 // digits of 2^63-1, the largest ID of a backend that counts in 64 bits
	switch id.Format {
	case FormatUUID:
		fill(given, "case", &id.Case, CaseLower)
		return
	case FormatPattern:
		fill(given, "case", &id.Case, CaseAsIs)
		longest = 64
	case FormatTimestamped:
		if id.Time.Epoch == "" && !doc.given(path+".time.epoch") {
			fill(doc.mappings[path+".time"], "layout", &id.Time.Layout, "20060102150405")
		}
	case FormatSnowflake:
		fill(doc.mappings[path+".time"], "shift", &id.Time.Shift, 22) // ten bits of machine and twelve of sequence
	}
	fill(given, "min_length", &id.MinLength, 1)
	fill(given, "max_length", &id.MaxLength, longest)
}

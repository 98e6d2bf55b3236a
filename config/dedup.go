package config

import (
	"net/http"
	"slices"
	"time"
)

// What becomes of a create that cannot be confirmed.
const (
	OnUnavailableForward = "forward"
	OnUnavailableRefuse  = "refuse"
)

// Dedup refuses a create whose request names an order that exists. The filter decides which
// orders are certainly new. The table that Confirm names decides about the others.
type Dedup struct {
	// Confirm is the name of a source, a table. It is optional with a filter of kind exact, if
	// the IDs are numbers of at most 19 digits. Otherwise it has no default.
	Confirm       string        `mapstructure:"confirm"`
	Duplicate     Reply         `mapstructure:"duplicate"`      // default 409 {"error":"order already exists"}
	OnUnavailable string        `mapstructure:"on_unavailable"` // the table does not answer in time; default forward
	Unavailable   Reply         `mapstructure:"unavailable"`    // of on_unavailable refuse; default 503, Retry-After 1s
	Timeout       time.Duration `mapstructure:"timeout"`        // of one question to the table, with the wait for a connection; 10ms to 5s, default 200ms
	MaxQueries    int           `mapstructure:"max_queries"`    // to the table at once, each on its own connection; 1 to 1,000, default 8
}

func (d *Dedup) ensureDefaults(doc *document, path string) {
	d.Duplicate.ensureDefaults(doc, path+".duplicate", Reply{Status: http.StatusConflict, Body: `{"error":"order already exists"}`})
	fill(doc, path+".on_unavailable", &d.OnUnavailable, OnUnavailableForward)
	if d.OnUnavailable == OnUnavailableRefuse {
		d.Unavailable.ensureDefaults(doc, path+".unavailable", Reply{
			Status: http.StatusServiceUnavailable, Body: `{"error":"order cannot be looked up, try again"}`, RetryAfter: time.Second,
		})
	}
	if d.Confirm != "" {
		fill(doc, path+".timeout", &d.Timeout, 200*time.Millisecond)
		fill(doc, path+".max_queries", &d.MaxQueries, 8)
	}
}

// maxQueries bounds max_queries. Few databases accept as many connections.
const maxQueries = 1_000

// dedup checks the dedup of a rule with create.
func (v *validator) dedup(path string, r *Rule) {
	d := r.Create.Dedup
	if d == nil {
		return
	}
	if !slices.ContainsFunc(r.IDs, ID.hasLocation) && !v.unusable(path+".id") {
		v.reject(path+".create.dedup", "is for requests that name the new order: give id a place, such as {header: x-order-id}, or remove this")
	}
	path += ".create.dedup"
	v.reply(path+".duplicate", d.Duplicate)
	v.choice(path+".on_unavailable", d.OnUnavailable, OnUnavailableForward, OnUnavailableRefuse)
	if d.OnUnavailable == OnUnavailableRefuse {
		v.reply(path+".unavailable", d.Unavailable)
	} else {
		v.option(path, "unavailable", d.Unavailable != Reply{}, v.discarded[path+".on_unavailable"], "on_unavailable "+OnUnavailableRefuse)
	}
	if d.Confirm == "" {
		v.dedupUnconfirmed(path, r)
		return
	}
	reference(v, path+".confirm", "sources", d.Confirm, v.config.Sources)
	if s, ok := v.config.Sources[d.Confirm]; ok && s.Kind == SourceCSV {
		v.reject(path+".confirm", "source %s is a file, which does not have the newest orders: name a table", quote(d.Confirm))
	}
	if f := v.config.Filters[r.Create.Filter]; len(f.Parts) > 0 {
		v.reject(path+".confirm", "is not available for a filter with parts: leave out dedup, or give the rule create.once")
	}
	between(v, path+".timeout", d.Timeout, 10*time.Millisecond, 5*time.Second)
	between(v, path+".max_queries", d.MaxQueries, 1, maxQueries)
}

// dedupUnconfirmed checks a dedup without confirm. Then the filter alone refuses creates, so it
// has to be certain of every ID that it contains.
func (v *validator) dedupUnconfirmed(path string, r *Rule) {
	f, known := v.config.Filters[r.Create.Filter]
	isUncertain := func(id ID) bool { return !id.isShortNumber() }
	switch {
	case v.given(path + ".confirm"):
		v.reject(path+".confirm", "is empty: give the name of a source that is a table")
		return
	case !known: // which another check reports
		return
	case f.Kind != FilterExact:
		v.rejectMissing(path, []string{"confirm"}, "confirm is missing: a filter of kind %s may take a new order for one that exists, "+
			"and its create would be refused; name a source that is a table, or choose kind %s", f.Kind, FilterExact)
		return
	case slices.ContainsFunc(r.IDs, isUncertain):
		v.rejectMissing(path, []string{"confirm"}, "confirm is missing: a filter of kind %s is certain of numbers of at most %d digits, "+
			"and the rule admits other IDs; name a source that is a table", FilterExact, maxExactDigits)
		return
	}
	v.option(path, "timeout", r.Create.Dedup.Timeout != 0, false, "a dedup with confirm")
	v.option(path, "max_queries", r.Create.Dedup.MaxQueries != 0, false, "a dedup with confirm")
}

// maxExactDigits is the number of digits of the largest numbers that are all below 2^64, as a
// filter of kind exact stores them.
const maxExactDigits = 19

// isShortNumber reports whether a filter of kind exact can store every ID of this form.
func (id ID) isShortNumber() bool {
	return (id.Format == FormatDigits || id.Format == FormatTimestamped || id.Format == FormatSnowflake) && id.MaxLength <= maxExactDigits
}

// hasLocation reports whether the entry says where the ID is in a request.
func (id ID) hasLocation() bool {
	return id.Path != "" || id.Query != "" || id.Header != "" || id.JSON != "" || id.Form != "" || id.Cookie != ""
}

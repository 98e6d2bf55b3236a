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
	// Confirm is the name of a source, a table. No kind of filter is certain of a duplicate: it has
	// IDs of creates that may have failed as well.
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
	fill(doc, path+".timeout", &d.Timeout, 200*time.Millisecond)
	fill(doc, path+".max_queries", &d.MaxQueries, 8)
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
		v.option(path, "unavailable", d.Unavailable.isSet(), v.discarded[path+".on_unavailable"], "on_unavailable "+OnUnavailableRefuse)
	}
	if key, _ := r.ByKey(); key != nil {
		v.reject(path, "refuses the repeat of a create before its key is looked up: remove dedup, or the once with a key")
	}
	if d.Confirm == "" {
		v.rejectMissing(path, []string{"confirm"}, "confirm is missing: the filter may take a new order for one that exists, "+
			"and its create would be refused; name a source that is a table")
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

// hasLocation reports whether the entry says where the ID is in a request.
func (id ID) hasLocation() bool {
	return id.Path != "" || id.Query != "" || id.Header != "" || id.JSON != "" || id.Form != "" || id.Cookie != ""
}

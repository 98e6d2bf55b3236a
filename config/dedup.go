package config

import (
	"slices"
	"time"
)

// OnUnavailableRefuse refuses a create that cannot be confirmed.
const OnUnavailableRefuse = "refuse"

// Dedup refuses a create whose request names an order that exists. The filter decides which
// orders are certainly new. The table that Confirm names decides about the others.
type Dedup struct {
	// Confirm is the name of a source, a table. No kind of filter is certain of a duplicate: it has
	// IDs of creates that may have failed as well.
	Confirm   string `mapstructure:"confirm" of:"sources" need:"a source that is a table: the filter may take a new order for one that exists, and its create would be refused"`
	Duplicate Reply  `mapstructure:"duplicate" reply:"409 0s {\"error\":\"order already exists\"}"` // default 409 {"error":"order already exists"}
	// OnUnavailable is what becomes of a create if the table does not answer in time.
	OnUnavailable string `mapstructure:"on_unavailable" default:"forward" oneof:"forward refuse"`
	// Unavailable is the answer to one that is refused; default 503, Retry-After 1s.
	Unavailable Reply `mapstructure:"unavailable" only:"on_unavailable=refuse" reply:"503 1s {\"error\":\"order cannot be looked up, try again\"}"`
	// Timeout bounds one query of the table, with the wait for a connection.
	Timeout time.Duration `mapstructure:"timeout" default:"200ms" min:"10ms" max:"5s"`
	// MaxQueries bounds the queries at once, each on its own connection.
	MaxQueries int `mapstructure:"max_queries" default:"8" min:"1" max:"1000"`
}

func (v *validator) dedup(path string, r *Rule) {
	d := r.Create.Dedup
	if d == nil {
		return
	}
	if !slices.ContainsFunc(r.IDs, ID.hasLocation) && !v.unusable(path+".id") {
		v.reject(path+".create.dedup", "is for requests that name the new order: give id a place, such as {header: x-order-id}, or remove this")
	}
	path += ".create.dedup"
	if key, _ := r.ByKey(); key != nil {
		v.reject(path, "refuses the repeat of a create before its key is looked up: remove dedup, or the once with a key")
	}
	if d.Confirm == "" {
		return
	}
	switch s := v.config.Sources[d.Confirm]; {
	case s.Kind == SourceCSV:
		v.reject(path+".confirm", "source %s is a file, which does not have the newest orders: name a table", quote(d.Confirm))
	case s.Feed():
		v.reject(path+".confirm", "source %s is a topic, in which no single order can be found: name a table", quote(d.Confirm))
	}
	if f := v.config.Filters[r.Create.Filter]; len(f.Parts) > 0 {
		v.reject(path+".confirm", "is not available for a filter with parts: leave out dedup, or give the rule create.once")
	}
}

// hasLocation reports whether the entry says where the ID is in a request.
func (id ID) hasLocation() bool {
	return id.Path != "" || id.Query != "" || id.Header != "" || id.JSON != "" || id.Form != "" || id.Cookie != ""
}

package config

import (
	"slices"
	"strconv"
	"time"
)

// statusTooEarly is that of RFC 8470, 5.2: a later attempt may succeed.
const statusTooEarly = 425

func (c *Condition) ensureDefaults(doc *document, path string) {
	c.Otherwise.ensureDefaults(doc, path+".otherwise", Reply{
		Status: statusTooEarly, Body: `{"error":"order is not ready to be settled, try again later"}`, RetryAfter: time.Second,
	})
	if c.Value != nil {
		fill(doc, path+".value.codec", &c.Value.Codec, CodecString)
	}
	if c.Geo != nil {
		fill(doc, path+".geo.codec", &c.Geo.Codec, CodecString)
	}
	if t := c.Time; t != nil {
		fill(doc, path+".time.from", &t.From, "00:00")
		fill(doc, path+".time.to", &t.To, "24:00")
		fill(doc, path+".time.zone", &t.Zone, "UTC")
		if t.Days == nil && !doc.given(path+".time.days") {
			t.Days = slices.Clone(weekdays)
		}
	}
}

func (s *Settle) ensureDefaultsOfConditions(doc *document, path string) {
	for i := range s.Require {
		s.Require[i].ensureDefaults(doc, path+".require["+strconv.Itoa(i)+"]")
	}
}

// asksRedis reports whether a condition of the settlement is about a key.
func (s *Settle) asksRedis() bool {
	return slices.ContainsFunc(s.Require, func(c Condition) bool { return c.Key() != "" })
}

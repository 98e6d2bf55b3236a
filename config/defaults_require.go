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

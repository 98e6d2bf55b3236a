package engine

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/ordergate/ordergate/internal/presence"
)

const (
	// fewRefusals is how many lookups a filter may refuse before it has accepted any: so many are an
	// operator who tries it out. After these, more refusals are verified.
	fewRefusals = 20
	// manyRefusals is how many are reported.
	manyRefusals = 100
	// maxStartSamples bounds the samples beyond the share.
	maxStartSamples = 100
)

// start is what a filter has answered since the start. While it has refused every lookup, its IDs
// may be those of another column, and every order that exists is refused.
type start struct {
	hit     atomic.Bool            // it had an order that a client looked up, or seemed to
	refused atomic.Int64           // before that
	sampled atomic.Int64           // beyond the share
	example atomic.Pointer[string] // the latest of manyRefusals
	logged  atomic.Bool
}

func (s *start) onAnswer(id string, a presence.Answer) {
	if s.hit.Load() {
		return
	}
	switch a {
	case presence.Maybe:
		s.hit.Store(true)
	case presence.Absent:
		if s.refused.Add(1) == manyRefusals {
			example := strings.Clone(id)
			s.example.Store(&example)
		}
	}
}

// looksWrong reports whether more refusals are to be verified.
func (s *start) looksWrong() bool {
	return !s.hit.Load() && s.refused.Load() > fewRefusals && s.sampled.Load() < maxStartSamples
}

// trouble is a reason in one line; "": there is none.
func (s *start) trouble() string {
	id := s.example.Load()
	if id == nil || s.hit.Load() {
		return ""
	}
	return fmt.Sprintf("all of %d or more lookups since the start were refused, as that of order %q: compare id_column, or the first column of the file, with the IDs in requests",
		manyRefusals, *id)
}

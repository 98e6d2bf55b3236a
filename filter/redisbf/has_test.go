package redisbf

import (
	"context"
	"errors"
	"fmt"

	"github.com/ordergate/ordergate/internal/presence"
)

// Has looks many IDs up, in as few round trips as possible, and sets the answer of each. An error
// leaves Unknown the IDs that it is about. Unlike [Set.Ask] it shares no round trip with other
// callers.
func (s *Set) Has(ctx context.Context, ids []string, answers []presence.Answer) error {
	if len(ids) != len(answers) {
		return fmt.Errorf("filter %s: %d answers for %d IDs", s.opts.Key, len(answers), len(ids))
	}
	clear(answers)
	var errs []error
	fail := func(err error) {
		if len(errs) < maxErrors {
			errs = append(errs, err)
		}
	}
	for len(ids) > 0 {
		n := min(len(ids), maxLookups)
		groups, from := s.groups(ids[:n])
		s.exchange(ctx, groups)
		for _, g := range groups {
			if g.err != nil {
				fail(g.err)
			}
		}
		for i, f := range from {
			if f.group == nil {
				fail(s.refuses(ids[i]))
				continue
			}
			answers[i] = f.group.answers[f.index]
		}
		ids, answers = ids[n:], answers[n:]
		if len(errs) > 0 && ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// maxErrors is how many errors Has returns.
const maxErrors = 3

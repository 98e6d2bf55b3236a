package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// fewRefusals is how many lookups a filter may refuse before it has accepted any: so many are an
	// operator who tries it out. After these, more refusals are verified.
	fewRefusals = 20
	// manyRefusals is how many are reported.
	manyRefusals = 100
	// exampleRefusals is how many of these are looked up in other columns.
	exampleRefusals = 10
	// startWait is the time for the backend's answers to samples, startTimeout that for the tables,
	// and startAgain that to the next such judgement.
	startWait, startTimeout, startAgain = 2 * time.Second, 5 * time.Second, time.Minute
	// maxStartSamples bounds the samples beyond the share.
	maxStartSamples = 100
)

// start is what a filter has answered since the start. While it has refused every lookup, its IDs
// may be those of another column, and every order that exists is refused. Or the orders are made up.
type start struct {
	hit      atomic.Bool  // it had an order that a client looked up, or seemed to
	refused  atomic.Int64 // before that
	sampled  atomic.Int64 // beyond the share
	lacked   atomic.Int64 // of the refused ones by the backend, too
	examples [exampleRefusals]atomic.Pointer[string]
	found    atomic.Pointer[string] // what seems wrong, in one line
}

func (s *start) onAnswer(id string, a presence.Answer) {
	if s.hit.Load() {
		return
	}
	switch a {
	case presence.Maybe:
		s.hit.Store(true)
	case presence.Absent:
		const step = manyRefusals / exampleRefusals
		if n := s.refused.Add(1); n <= manyRefusals && n%step == 0 {
			example := strings.Clone(id)
			s.examples[n/step-1].Store(&example)
		}
	}
}

// looksWrong reports whether more refusals are to be verified.
func (s *start) looksWrong() bool {
	return !s.hit.Load() && s.refused.Load() > fewRefusals && s.sampled.Load() < maxStartSamples
}

// mayBeWrong reports whether all of many lookups were refused, and the backend has not answered that
// it lacks the orders, too.
func (s *start) mayBeWrong() bool {
	return !s.hit.Load() && s.refused.Load() >= manyRefusals && s.lacked.Load() < shownAbsences
}

// trouble is a reason in one line; "": there is none.
func (s *start) trouble() string {
	if found := s.found.Load(); found != nil && s.mayBeWrong() {
		return *found
	}
	return ""
}

// watchStart reports once if the filter seems to have the IDs of another column, until ctx ends.
func (v *verifier) watchStart(ctx context.Context) {
	s := &v.start
	for range wait.Every(ctx, time.Second) {
		if s.hit.Load() {
			return
		}
		if !s.mayBeWrong() || wait.For(ctx, startWait) != nil || !s.mayBeWrong() {
			continue
		}
		if found := v.judgeStart(ctx); found != "" {
			s.found.Store(&found)
			v.log.Warn(found,
				runbook.OrderRefused.Do("compare id_column with the IDs in requests"))
			return
		}
		_ = wait.For(ctx, startAgain)
		s.refused.Store(0)
	}
}

// judgeStart returns why all of many lookups may have been refused, in one line; "": for no other
// reason than that the orders are made up. No column of the tables has any.
func (v *verifier) judgeStart(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var ids []string
	for i := range v.start.examples {
		if id := v.start.examples[i].Load(); id != nil {
			ids = append(ids, *id)
		}
	}
	why, lacked := v.tables.Elsewhere(ctx, ids)
	switch {
	case lacked || len(ids) == 0:
		return ""
	case why == "":
		why = "the orders are made up, or id_column, or the first column of the file, is not that of the IDs in requests"
	}
	return fmt.Sprintf("all of %d or more lookups since the start were refused, as that of order %q: %s", manyRefusals, ids[len(ids)-1], why)
}

package redisset

import (
	"context"
	"errors"
	"time"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/runbook"
)

// refreshesPerViewAge is the number of refreshes of the state in ViewAge.
const refreshesPerViewAge = 2

const (
	// retryPause is the longest pause after failed work.
	retryPause = 30 * time.Second
	// retryShare is the ratio of that pause to the duration of the work. So failed reads of the
	// sources take at most a tenth of the time.
	retryShare = 10
)

// Run keeps the view of the set up to date until ctx ends. When it is due it fills the set,
// finishes the work of another instance, and makes the set larger. It returns nil.
func (s *Set) Run(ctx context.Context) error {
	tick := time.NewTicker(s.opts.ViewAge / refreshesPerViewAge)
	defer tick.Stop()
	var seen lastChecks
	var began, next time.Time // start of the last work, and earliest start of the next
	// The view stays up to date during the work, and during the wait for the leader lock.
	// Another instance may do the work, and drop a generation that this process uses.
	working, done := false, make(chan error, 1)
	for {
		if s.check(ctx, &seen) && !working && s.opts.Fill != nil && !time.Now().Before(next) {
			if task := s.nextTask(); task != nil {
				working, began = true, time.Now()
				go func() {
					s.workMu.Lock()
					defer s.workMu.Unlock()
					done <- task(ctx)
				}()
			}
		}
		select {
		case <-ctx.Done():
			if working {
				s.log.Debug("work on the filter in Redis was stopped", "error", <-done)
			}
			return nil
		case err := <-done:
			working, seen = false, lastChecks{}
			if ctx.Err() == nil {
				s.noteResult(err)
			}
			if err != nil {
				next = time.Now().Add(s.opts.retryAfter(time.Since(began)))
			}
		case <-s.wakeup:
			next, seen = time.Time{}, lastChecks{}
		case <-tick.C:
		}
	}
}

// noteResult records the result of the last work for State. It logs one line for repeated equal
// errors.
func (s *Set) noteResult(err error) {
	if err == nil {
		s.lastErr.Store(nil)
		return
	}
	if before := s.lastErr.Swap(&err); before == nil || (*before).Error() != err.Error() {
		s.log.Error("work on the filter in Redis failed", "error", err,
			runbook.FilterNotReady.Do("repair what error names; ordergate tries again"))
	}
}

// retryAfter returns the pause after work of that duration failed. It is short if ViewAge is,
// as in tests.
func (o *Options) retryAfter(took time.Duration) time.Duration {
	return min(o.ViewAge+retryShare*took, 15*o.ViewAge, retryPause)
}

// lastChecks are the times of the last checks.
type lastChecks struct{ marks, info time.Time }

// perShard bounds the rate of the completeness checks: one takes a command for each shard. Each
// query also proves that the set is complete; the check only triggers a fill.
const perShard = 10 * time.Millisecond

// check reads whether the set is complete and, after InfoEvery, its size.
func (s *Set) check(ctx context.Context, seen *lastChecks) (asked bool) {
	v, err := s.refresh(ctx)
	if err != nil {
		s.markUnhealthy(ctx, err)
		return false
	}
	if err := s.detectRestart(ctx); err != nil {
		s.markUnhealthy(ctx, err)
		return false
	}
	if time.Since(seen.marks) < time.Duration(v.Shards)*perShard {
		return true
	}
	lacking, err := s.incomplete(ctx, v)
	if err != nil {
		s.markUnhealthy(ctx, err)
		return false
	}
	seen.marks = time.Now()
	s.warnOfEviction(ctx, v)
	was := s.health.Load()
	s.health.Store(&health{complete: len(lacking) == 0})
	if len(lacking) == 0 && v.checkpointed {
		s.everComplete.Store(true)
	}
	switch {
	case v.checkpointed:
		s.rereadReason = ""
	case len(lacking) == 0:
		s.requestReread(noCheckpoints)
	}
	if was.complete && len(lacking) > 0 && !s.isDayRollover(v, lacking) {
		s.log.Warn("the filter in Redis is incomplete: nothing is absent until it has been filled again",
			runbook.FilterNotReady.Do("nothing: ordergate fills it from its sources"))
	}
	if s.info.Load().Generation == v.Generation && time.Since(seen.info) < s.opts.InfoEvery {
		return true
	}
	info, err := v.current.info(ctx)
	if err != nil {
		s.markUnhealthy(ctx, err)
		return false
	}
	info.Generation = v.Generation
	s.info.Store(&info)
	seen.info = time.Now()
	return true
}

// warnOfEviction logs once that Redis may evict the set.
func (s *Set) warnOfEviction(ctx context.Context, v *view) {
	sets, err := v.current.sets()
	if s.policyChecked || err != nil {
		return
	}
	warning, err := sets[0].CheckPolicy(ctx)
	if err != nil {
		return // the next check retries
	}
	s.policyChecked = true
	if warning != "" {
		s.log.Warn(warning,
			runbook.RedisSettings.Do("set maxmemory-policy noeviction"))
	}
}

func (s *Set) markUnhealthy(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // Run ends
	}
	if h := s.health.Load(); h.err == nil || errors.Is(h.err, errNotRead) { // one line for each outage
		s.log.Warn("the filter in Redis cannot be queried", "error", err,
			runbook.FilterNotReady.Do("look at Redis and the way to it; ordergate tries again"))
	}
	s.health.Store(&health{err: err})
}

// nextTask returns the work that is due, or nil.
func (s *Set) nextTask() func(context.Context) error {
	v := s.view.Load()
	stuck := s.tooFull() && s.isAtMax(v)
	s.noteMax(stuck)
	switch {
	case !s.health.Load().complete && (!s.tooFull() || stuck):
		return s.fill
	case (v.Next != 0 || v.Old != 0) && !s.singleGeneration():
		return s.grow
	case s.tooFull() && !stuck || s.opts.AtFill > 0 && v.Capacity < s.opts.Bits.Capacity:
		return s.grow
	}
	return nil
}

// tooFull uses the last info.
func (s *Set) tooFull() bool {
	info, at := s.info.Load(), s.opts.AtFill
	if at == 0 || info.Capacity == 0 {
		return false
	}
	for _, part := range info.Parts {
		// At capacity half of the bits are set.
		if float64(part.IDs) >= at*float64(part.Capacity) || part.FillRatio >= at/2 {
			return true
		}
	}
	return false
}

// isDayRollover is for sets with segments: only tomorrow's is missing.
func (s *Set) isDayRollover(v *view, lacking []*redisbf.Set) bool {
	d, ok := v.current.(*days)
	return ok && d.isRollover(lacking, v.LastDay)
}

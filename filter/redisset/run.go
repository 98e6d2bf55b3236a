package redisset

import (
	"context"
	"errors"
	"time"

	"github.com/ordergate/ordergate/filter/redisbf"
)

// looks is how many times in ViewAge the state is read.
const refreshesPerViewAge = 2

const (
	// retryPause is the longest that follows work which came to nothing.
	retryPause = 30 * time.Second
	// retryShare is how many times as long as the work a pause is: sources are not read
	// in vain for more than a tenth of the time.
	retryShare = 10
)

// Run keeps what is known of the set up to date until ctx ends, and fills the set,
// ends what another ordergate left undone, and makes it larger, whenever that is to
// be done. It returns nil.
func (s *Set) Run(ctx context.Context) error {
	tick := time.NewTicker(s.opts.ViewAge / refreshesPerViewAge)
	defer tick.Stop()
	var seen lastChecks
	var began, next time.Time // of the last work, and the earliest time for more
	// What is known is kept up to date while work is done, or waited for: another may
	// do it, and drop what this process would go on asking.
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
				s.log.Debug("work on the filter in Redis is given up", "error", <-done)
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

// outcome keeps what became of the last work, for State. What fails in the same way
// again and again is one line.
func (s *Set) noteResult(err error) {
	if err == nil {
		s.lastErr.Store(nil)
		return
	}
	if before := s.lastErr.Swap(&err); before == nil || (*before).Error() != err.Error() {
		s.log.Error("the filter in Redis needs work that failed", "error", err)
	}
}

// pause returns how long nothing is tried after work that took so long and failed. It
// is short where everything is, in tests.
func (o *Options) retryAfter(took time.Duration) time.Duration {
	return min(o.ViewAge+retryShare*took, 15*o.ViewAge, retryPause)
}

// glances are when something was looked at last.
type lastChecks struct{ marks, info time.Time }

// perShard bounds how often the marks are looked at: it takes a command for each
// shard. Whether a set is whole is seen with each answer; this is for what is done
// about it.
const perShard = 10 * time.Millisecond

// examine finds out how the set is, and, after InfoEvery, how full.
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
		s.log.Warn("the filter in Redis is not whole any more: nothing counts as absent until it has been filled again")
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

// warnOfEviction tells once if Redis may evict the set.
func (s *Set) warnOfEviction(ctx context.Context, v *view) {
	sets, err := v.current.sets()
	if s.policyChecked || err != nil {
		return
	}
	warning, err := sets[0].CheckPolicy(ctx)
	if err != nil {
		return // next time
	}
	s.policyChecked = true
	if warning != "" {
		s.log.Warn(warning)
	}
}

func (s *Set) markUnhealthy(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // it is the end
	}
	if h := s.health.Load(); h.err == nil || errors.Is(h.err, errNotRead) { // once for an outage, however long
		s.log.Warn("the filter in Redis cannot be asked", "error", err)
	}
	s.health.Store(&health{err: err})
}

// task returns what is to be done, or nil.
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

// tooFull goes by the last info.
func (s *Set) tooFull() bool {
	info, at := s.info.Load(), s.opts.AtFill
	if at == 0 || info.Capacity == 0 {
		return false
	}
	for _, part := range info.Parts {
		// Half of the bits are set at capacity.
		if float64(part.IDs) >= at*float64(part.Capacity) || part.FillRatio >= at/2 {
			return true
		}
	}
	return false
}

// turned is for sets with segments: tomorrow's is still to be made.
func (s *Set) isDayRollover(v *view, lacking []*redisbf.Set) bool {
	d, ok := v.current.(*days)
	return ok && d.isRollover(lacking, v.LastDay)
}

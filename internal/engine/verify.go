package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// maxVerified bounds the refusals of one filter that are held against the tables in a second,
	// and those against the backend.
	maxVerified = 5
	// maxUnanswered bounds the lookups in a row that go on to the backend although ordergate has
	// seen no answer of it: Envoy may not show any.
	maxUnanswered = 20
	// maxSuspects bounds the orders of one filter and check that wait for their second check.
	maxSuspects = 64
	// suspectTime is how long an order stays suspect if nothing proves it.
	suspectTime = time.Hour
	// suspectLogEvery is the time between two lines of the log about orders that are not proved.
	suspectLogEvery = time.Minute
)

// verifier holds a random share of the refused lookups of one filter against its tables, and
// against the backend. An order that exists makes the filter unknown, at all instances. A nil
// *verifier verifies nothing.
//
// An order may just be created, and then the refusal was right. So the verifier asks the filter
// again when it has had the time to learn the order. Only an order that is still absent is proof.
type verifier struct {
	filter  string
	oneIn   int
	after   time.Duration // from the refusal to the second check
	loader  *loader.Loader
	tables  *loader.Tables
	counts  *metrics.Verified
	log     *slog.Logger
	problem *recurring.Problem // of tables

	tableRate, backendRate *rate.Limiter
	hasTables              atomic.Bool
	start                  start
	refused                chan string  // for the tables
	answered               chan suspect // for the filter
	suspected              atomic.Pointer[finding]

	mu       sync.Mutex
	suspects map[string]suspect // by ID
}

// suspect is an order that was refused and that may exist.
type suspect struct {
	id    string
	check metrics.VerifyCheck
	table string        // that has it
	rule  *verifiedRule // whose lookup the backend answered
	since time.Time
	shown bool // as suspected
}

// finding is the last order that the backend seems to have. Its proof is missing.
type finding struct {
	text string
	at   time.Time
}

func (m *Engine) newVerifier(name string, l *loader.Loader) (*verifier, error) {
	c := m.config.Filters[name]
	counts := m.metrics.Verified(name)
	if c.VerifyOneIn() == 0 {
		return nil, nil
	}
	log := m.log.With("filter", name)
	tables, err := loader.NewTables(m.config, name, log)
	if err != nil {
		return nil, err
	}
	v := &verifier{
		filter: name, oneIn: c.VerifyOneIn(), after: loader.VerifyAfter(m.config, name), loader: l, tables: tables, counts: counts, log: log,
		problem: recurring.New(log, slog.LevelWarn, "refused orders cannot be looked up in their table", "refused orders are looked up in their table again",
			runbook.Refusals.Do("repair what error names: mostly the database or the way to it")),
		tableRate: rate.NewLimiter(maxVerified, maxVerified), backendRate: rate.NewLimiter(maxVerified, maxVerified),
		refused: make(chan string, maxVerified), answered: make(chan suspect, maxSuspects), suspects: make(map[string]suspect),
	}
	v.hasTables.Store(tables.Any())
	return v, nil
}

// onAnswer takes an answer of the filter. It does not block, and allocates only for a sample.
func (v *verifier) onAnswer(id string, a presence.Answer) {
	if v == nil {
		return
	}
	v.start.onAnswer(id, a)
	if a != presence.Absent || !v.hasTables.Load() || !v.sample(v.tableRate) {
		return
	}
	select {
	case v.refused <- strings.Clone(id):
	default: // the database is slow
	}
}

// sample is true for the share of the refusals that are verified, and for more of them at a start
// that looks wrong. The generator is ChaCha8 with a seed from the kernel, so no client can predict
// it.
func (v *verifier) sample(limit *rate.Limiter) bool {
	drawn := rand.IntN(v.oneIn) == 0
	switch {
	case !drawn && !v.start.looksWrong() || !limit.Allow():
		return false
	case !drawn:
		v.start.sampled.Add(1)
	}
	return true
}

// verifiedRule implements gate.Verifier for the lookups of one rule.
type verifiedRule struct {
	*verifier
	name       string
	declared   bool         // the rule says which answers show that an order exists, and which that it does not
	absences   atomic.Int64 // answers of the backend that it has no such order
	unanswered atomic.Int64 // samples since the last answer
}

// shownAbsences is the number of answers "no such order" after which the backend counts as one that
// tells such orders from others.
const shownAbsences = 10

func (v *verifier) ofRule(name string, declared bool) gate.Verifier {
	if v == nil {
		return nil
	}
	return &verifiedRule{verifier: v, name: name, declared: declared}
}

// Sample implements gate.Verifier. Without a declaration, what the backend answers proves nothing,
// so no made-up ID reaches it.
func (r *verifiedRule) Sample() bool {
	return r.declared && r.unanswered.Load() < maxUnanswered && r.sample(r.backendRate) && r.unanswered.Add(1) <= maxUnanswered
}

// Answered implements gate.Verifier.
func (r *verifiedRule) Answered(id string, means gate.Meaning) (lacks bool) {
	r.unanswered.Store(0)
	if means == gate.MeansAbsent {
		r.absences.Add(1)
	}
	answer := r.loader.Filter().MayContain(id)
	lacks = answer == presence.Absent
	switch {
	case means == gate.MeansDone && answer != presence.Maybe:
		select {
		case r.answered <- suspect{id: strings.Clone(id), check: metrics.VerifyBackend, rule: r, since: time.Now()}:
		default: // enough wait
		}
	case lacks && means == gate.MeansAbsent:
		r.start.lacked.Add(1)
		r.counts.Add(metrics.VerifyBackend, metrics.VerifyAbsent)
	case lacks:
		r.counts.Add(metrics.VerifyBackend, metrics.VerifyUnclear)
	}
	return lacks
}

// run verifies until ctx ends.
func (v *verifier) run(ctx context.Context) {
	if v == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { v.askTables(ctx) })
	wg.Go(func() { v.askFilter(ctx) })
	wg.Go(func() { v.watchStart(ctx) })
	for range wait.Every(ctx, time.Second) {
		v.judge(ctx)
	}
}

// askTables looks refused orders up.
func (v *verifier) askTables(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-v.refused:
			refused := time.Now()
			switch table, err := v.tables.Find(ctx, id); {
			case ctx.Err() != nil:
			case err != nil:
				v.counts.Add(metrics.VerifyTable, metrics.VerifyUnavailable)
				v.problem.Note("error", err)
			case table != "":
				v.add(suspect{id: id, check: metrics.VerifyTable, table: table, since: refused})
			case v.tables.Any():
				v.counts.Add(metrics.VerifyTable, metrics.VerifyAbsent)
			}
			v.hasTables.Store(v.tables.Any())
		}
	}
}

// askFilter keeps the orders of the backend that the filter lacks. In a state of the filter in
// which all lookups pass, these are also orders of which it has yet to read.
func (v *verifier) askFilter(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-v.answered:
			if v.loader.Filter().Lacks(ctx, s.id) {
				v.add(s)
			}
			_ = wait.For(ctx, time.Second/maxVerified) // a filter in Redis is asked as rarely as a table
		}
	}
}

func (v *verifier) add(s suspect) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, is := v.suspects[s.id]
	if is && (known.check == s.check || s.check == metrics.VerifyBackend) {
		return
	}
	alike := 0
	for _, other := range v.suspects {
		if other.check == s.check {
			alike++
		}
	}
	if alike < maxSuspects {
		v.suspects[s.id] = s
	}
}

// judge decides about the suspects that have waited for long enough.
func (v *verifier) judge(ctx context.Context) {
	v.mu.Lock()
	var due []suspect
	for _, s := range v.suspects {
		if time.Since(s.since) >= v.after {
			due = append(due, s)
		}
	}
	v.mu.Unlock()
	f := v.loader.Filter()
	misses := make(map[*verifiedRule]int) // refused orders that the backend seems to have
	for _, s := range due {
		misses[s.rule]++
	}
	for _, s := range due {
		switch lacks := f.Lacks(ctx, s.id); {
		case ctx.Err() != nil:
			return
		case !lacks:
			v.end(s, metrics.VerifyLate)
		case time.Since(s.since) > v.after+suspectTime:
			v.end(s, "")
		case !f.IsAbsent(ctx, s.id): // nothing is refused now
		case s.proves():
			v.end(s, metrics.VerifyExists)
			v.log.Error("an order was refused although it exists: the filter is unknown until it has the order", "order", s.id, "check", s.source(),
				runbook.OrderRefused.Do("look why the filter's sources lack the order"))
			v.loader.Disprove(ctx, s.id, s.text())
			return // one doubt is enough: its reading may bring the others
		case !s.shown && v.isSuspected(&s, misses[s.rule]):
			v.suspect(s)
		}
	}
}

// end drops a suspect, and counts the result unless it is "".
func (v *verifier) end(s suspect, result string) {
	v.mu.Lock()
	delete(v.suspects, s.id)
	v.mu.Unlock()
	if result != "" && !(result == metrics.VerifyLate && s.shown) {
		v.counts.Add(s.check, result)
	}
}

// suspect shows an order that the backend seems to have.
func (v *verifier) suspect(s suspect) {
	v.mu.Lock()
	s.shown = true
	v.suspects[s.id] = s
	v.mu.Unlock()
	v.counts.Add(s.check, metrics.VerifySuspected)
	last := v.suspected.Swap(&finding{text: s.text(), at: time.Now()})
	if last == nil || time.Since(last.at) > suspectLogEvery {
		v.log.Error("orders are refused although the backend seems to have them",
			"order", s.id, "check", s.source(),
			runbook.OrderRefused.Do("compare id_column, or the file's first column, with the IDs in requests, and done and absent in the rule's answer with the backend's answers"))
	}
}

// proves reports whether the order certainly exists. A table has it. Of the backend's answers only
// those count that the rule declares: a client might find a query, or a header, with which the
// backend answers 200 for any number. A backend that has never said "no such order" says nothing.
func (s *suspect) proves() bool {
	return s.check == metrics.VerifyTable || s.rule.declared && s.rule.absences.Load() > 0
}

// isSuspected reports whether the backend has shown that it answers differently if an order does not
// exist. If it never has, all of some orders would have to be missing, and the filter never had any:
// it has other IDs than clients look up, or the rule is wrong about the backend's answers.
func (v *verifier) isSuspected(s *suspect, misses int) bool {
	return s.rule.absences.Load() >= shownAbsences ||
		s.rule.declared && misses >= shownAbsences && s.rule.absences.Load() == 0 && !v.start.hit.Load()
}

// source names the check.
func (s *suspect) source() string {
	if s.check == metrics.VerifyTable {
		return "table of source " + s.table
	}
	return "backend's answer to rule " + s.rule.name
}

func (s *suspect) text() string {
	return fmt.Sprintf("order %q exists by the %s, and the filter lacks it: correct its sources and run ordergate load, or run ordergate filter add", s.id, s.source())
}

// conditions has one while an order is suspected, or the start looks wrong. The process stays ready.
func (v *verifier) conditions() []health.Condition {
	if v == nil {
		return nil
	}
	reason := v.start.trouble()
	if found := v.suspected.Load(); found != nil && time.Since(found.at) <= suspectTime {
		reason = "seemingly " + found.text
	}
	if reason == "" {
		return nil
	}
	return []health.Condition{{Name: "verify of filter " + v.filter, Ready: true, Reason: reason}}
}

// close disconnects from the tables. Run has returned.
func (v *verifier) close() {
	if v != nil {
		v.tables.Close()
		v.problem.Drop()
	}
}

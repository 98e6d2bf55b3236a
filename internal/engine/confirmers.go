package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source"
)

// confirmers holds the confirmers of the rules, with those of earlier configurations: a request
// that began with an earlier gate may still ask. A confirmer that is not in use has no connection.
type confirmers struct {
	metrics *metrics.Metrics
	log     *slog.Logger
	problem *recurring.Problem

	mu  sync.Mutex
	all map[string]*confirmer // by their settings
}

func newConfirmers(m *metrics.Metrics, log *slog.Logger) *confirmers {
	return &confirmers{
		metrics: m, log: log, all: make(map[string]*confirmer),
		problem: recurring.New(log, slog.LevelWarn,
			"the order of a create cannot be looked up in its table: on_unavailable decides", "orders of creates are looked up again",
			runbook.CreateUnconfirmed.Do("repair what error names: mostly the database or the way to it")),
	}
}

// confirmer looks up the orders of one rule's creates. It counts the results, and logs failures.
type confirmer struct {
	*source.Confirmer
	rule, source string
	counts       *metrics.Confirms
	problem      *recurring.Problem
	inUse        bool // guarded by confirmers.mu
	failed       recentEvent
	why          atomic.Pointer[string] // of the last failure
}

// of returns the confirmer of a rule whose dedup has one.
func (cs *confirmers) of(c *config.Config, r *config.Rule) (gate.Confirmer, error) {
	d := r.Create.Dedup
	settings := fmt.Sprintf("%q %q %v %d %s", r.Name, d.Confirm, d.Timeout, d.MaxQueries, strings.Join(rules.Forms(rules.IDsOf(c, r.Create.Filter)), " "))
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if known := cs.all[settings]; known != nil {
		return known, nil
	}
	opened, err := loader.NewConfirmer(c, r, cs.log)
	if err != nil {
		return nil, fmt.Errorf("rule %s: dedup: source %s: %w", r.Name, d.Confirm, err)
	}
	added := &confirmer{Confirmer: opened, rule: r.Name, source: d.Confirm, counts: cs.metrics.Confirms(r.Name), problem: cs.problem}
	cs.all[settings] = added
	return added, nil
}

// use connects the confirmers of the policies, and disconnects the others.
func (cs *confirmers) use(policies []gate.Policy) {
	used := make(map[*confirmer]bool)
	for i := range policies {
		if create := policies[i].Create; create != nil && create.Dedup != nil {
			if c, ok := create.Dedup.Confirm.(*confirmer); ok {
				used[c] = true
			}
		}
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.all {
		switch c.inUse = used[c]; {
		case c.inUse:
			c.Warm()
		default:
			c.Retire()
		}
	}
}

// conditions has one for each confirmer in use that failed of late. The process stays ready.
func (cs *confirmers) conditions() (list []health.Condition) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.all {
		if why := c.why.Load(); c.inUse && why != nil && c.failed.isRecent() {
			list = append(list, health.Condition{Name: "dedup of rule " + c.rule, Ready: true, Reason: "orders of creates cannot be looked up: " + *why})
		}
	}
	slices.SortFunc(list, func(a, b health.Condition) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (cs *confirmers) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.all {
		c.Close()
	}
	cs.problem.Drop()
}

// Exists implements gate.Confirmer.
func (c *confirmer) Exists(ctx context.Context, id string) (bool, error) {
	start := time.Now()
	exists, err := c.Confirmer.Exists(ctx, id)
	took := time.Since(start)
	switch {
	case err != nil && ctx.Err() != nil: // the client has left
	case err != nil:
		c.counts.Confirmed(metrics.ConfirmUnavailable, took)
		why := err.Error()
		c.why.Store(&why)
		c.failed.note()
		c.problem.Note("rule", c.rule, "source", c.source, "error", err)
	default:
		result := metrics.ConfirmNew
		if exists {
			result = metrics.ConfirmExists
		}
		c.counts.Confirmed(result, took)
		if c.why.Load() != nil {
			c.why.Store(nil)
		}
	}
	return exists, err
}

package gate

import (
	"errors"
	"log/slog"

	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/runbook"
)

// Problems logs what calls end with, the same for every adapter. It is safe for concurrent use.
type Problems struct {
	log                          *slog.Logger
	refused, ended, unstored     *recurring.Problem
	unnamed, abandoned, unlogged *recurring.Problem // creates whose orders were not learned
}

// LogProblems has what calls end with logged, before the gate is used.
func (g *Gate) LogProblems(p *Problems) { g.problems = p }

// NewProblems returns the problems of an adapter, none of which has occurred.
func NewProblems(log *slog.Logger) *Problems {
	return &Problems{
		log: log,
		refused: recurring.New(log, slog.LevelWarn, "settlement refused", "settlements get their locks again",
			runbook.LocksFail.Do("repair what error names: mostly Redis or the way to it")),
		ended: recurring.New(log, slog.LevelWarn, "a call is ended: its lease was lost, or held for max_hold", "calls keep their leases again",
			runbook.LeaseLost.Do("compare the payouts of this order, unless the database checks the fence")),
		unstored: recurring.New(log, slog.LevelWarn, "an answer was not stored", "answers are stored again",
			runbook.AnswersNotStored.Do("repair what reason or error names")),
		unnamed: recurring.New(log, slog.LevelError, "a new order was not learned: the answer does not name it", "answers to creates name their orders again",
			runbook.OrderNotLearned.Do("compare create.learn of the rule with the backend's answer; without a table among the sources, run ordergate load")),
		// A client can cause it by leaving.
		abandoned: recurring.New(log, slog.LevelWarn, "a create ended without its whole answer, and its order may exist", "creates end with their answers again",
			runbook.Abandoned.Do("nothing where a table is among the sources; otherwise run ordergate load when they have every order")),
		unlogged: recurring.New(log, slog.LevelWarn, "a new order was not learned by every ordergate", "new orders are learned again",
			runbook.LocksFail.Do("look at Redis and the way to it; ordergate tries again")),
	}
}

// denied logs a call that did not get its lock, unless another call has it.
func (p *Problems) denied(c *Call, err error) {
	if c.Decision.Verdict.IsTrouble() {
		args, key := c.LogArgs(), c.Key()
		if failed, ok := errors.AsType[*ConditionError](err); ok {
			args, key = append(args, "condition", failed.Name), failed.Key
		}
		p.refused.Note(append(args, "key", key, "error", err)...)
	}
}

// lost logs a call that the gate ended after it was forwarded.
func (p *Problems) lost(c *Call) {
	p.ended.Note(append(c.LogArgs(), "key", c.Key())...)
}

// notStored logs a call whose answer is not stored: with "reason", it is unfit for that, and with "error",
// Redis did not.
func (p *Problems) notStored(c *Call, key string, why any) {
	p.unstored.Note(append(c.LogArgs(), key, why)...)
}

// unlearned logs a create whose order is not known everywhere; nil: it is.
func (p *Problems) unlearned(c *Call, err error) {
	problem := p.unlogged
	switch {
	case err == nil:
		return
	case errors.Is(err, ErrUnnamed):
		problem = p.unnamed
	case errors.Is(err, ErrAbandoned):
		problem = p.abandoned
	}
	problem.Note(append(c.LogArgs(), "error", err)...)
}

// Drop ends the problems without a line.
func (p *Problems) Drop() {
	for _, problem := range []*recurring.Problem{p.refused, p.ended, p.unstored, p.unnamed, p.abandoned, p.unlogged} {
		problem.Drop()
	}
}

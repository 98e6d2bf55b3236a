// Package explain says how ordergate decides on a request, and which part of it is wrong.
//
// Start with [New], then [Explainer.Explain]: it decides with the gate, and needs neither Redis nor a
// running ordergate.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Explanation is the result of explain. Its JSON always has all keys; a key without a value
// is null. Bytes of the request outside visible ASCII are written \xNN.
type Explanation struct {
	Method   string     `json:"method"`
	Target   string     `json:"target"`
	Rule     *string    `json:"rule"`
	Mode     *string    `json:"mode"`
	Enforced *bool      `json:"enforced"` // null: no rule decides
	Share    *string    `json:"share"`    // why the rule's share has the request, or leaves it out; null: no share
	Actions  []string   `json:"actions"`
	Found    []found    `json:"found"`    // the IDs that the request has where the rule reads them
	RawID    *string    `json:"raw_id"`   // of the first ID found, without its parts
	ID       *string    `json:"id"`       // canonical, with its parts
	IDs      []string   `json:"ids"`      // all canonical IDs, if a list names several
	LockKey  *string    `json:"lock_key"` // as in x-ordergate-key
	LockKeys []string   `json:"lock_keys"`
	LimitKey *string    `json:"limit_key"` // of the permit that the settlement also needs
	OnceKey  *string    `json:"once_key"`  // of the lock of the request's key (once: by)
	Forgets  []string   `json:"forgets"`   // the stored answers that the call deletes
	Verdict  *string    `json:"verdict"`   // null: decided at run time
	Status   *int       `json:"status"`    // null: the backend's status, or decided at run time
	Reason   *string    `json:"reason"`    // why ordergate refuses the request
	Because  string     `json:"because"`   // the Explanation in words
	Answers  *meanings  `json:"answers"`   // what the backend's answers mean; null: their status tells
	Possible []possible `json:"possible"`

	Near     []neighbour `json:"near"`      // rules that the request, which no rule guards, misses by one thing
	Part     *string     `json:"part"`      // the part of the request that Reason names
	PartText *string     `json:"part_text"` // the part; of a long one, the text around the byte
	Offset   *int        `json:"offset"`    // of Byte or Piece in the part, in bytes
	Byte     *string     `json:"byte"`      // the faulty byte; null: not a single byte
	Piece    *string     `json:"piece"`     // the faulty text, if it is longer than a byte
	Live     []LockState `json:"live"`      // null without --live
	Table    *TableState `json:"table"`     // null without --live, and where no table is asked
	Column   int         `json:"-"`         // of Byte or Piece in PartText
	settle   *config.Settle
	grpc     bool // the request is a gRPC call
	create   *config.Create

	Stored     []AnswerState    `json:"stored"`     // null without --live
	Conditions []ConditionState `json:"conditions"` // null without --live
	rule       *config.Rule
	places     []gate.AnswerPlace // of stored answers
	values     []string           // of the headers that conditions use
}

// found is an ID and its location in the request.
type found struct {
	Place string `json:"place"`
	Raw   string `json:"raw"` // as sent, in visible ASCII

	id     *order.ID
	part   string
	text   string // of the part
	offset int    // of raw in text, in bytes
	raw    string // as sent
}

// Explainer is a request with the rules that apply to it.
type Explainer struct {
	order.Request
	Headers order.HeaderList // those of Request
	rules   []order.Rule
	table   *order.Table
	gate    *gate.Gate
}

// New parses a request line and headers. It does not change the target.
func New(line string, headers []string) (*Explainer, error) {
	q := &Explainer{}
	q.Method, q.Target, _ = strings.Cut(line, " ")
	for _, version := range []string{" HTTP/1.0", " HTTP/1.1", " HTTP/2"} {
		q.Target = strings.TrimSuffix(q.Target, version)
	}
	if !IsToken(q.Method) || q.Target == "" {
		return nil, fmt.Errorf("%q is not METHOD TARGET, as in 'POST /orders/42/settle'", line)
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || !IsToken(name) {
			return nil, fmt.Errorf("-H %q is not 'name: value' (for the authority: 'host: ...')", h)
		}
		name, value = strings.ToLower(name), strings.Trim(value, " \t") // RFC 9110, 5.5
		if name == "host" {
			q.Host = value
			continue
		}
		q.Headers = append(q.Headers, [2]string{name, value})
	}
	q.Header, q.BodyState = q.Headers, order.BodyComplete
	return q, nil
}

// IsToken reports whether text is a valid method or header name (RFC 9110, 5.6.2).
func IsToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// StubFilter is a filter without orders: it answers Unknown.
type StubFilter struct{}

// MayContain implements gate.Filter.
func (StubFilter) MayContain(string) presence.Answer { return presence.Unknown }

// Query implements gate.Filter.
func (StubFilter) Query(context.Context, string) presence.Answer { return presence.Unknown }

// Learn implements gate.Filter.
func (StubFilter) Learn(context.Context, string) error { return errOnlyExplained }

// Followed implements gate.Filter.
func (StubFilter) Followed() bool { return false }

// CaughtUp implements gate.Filter.
func (StubFilter) CaughtUp(context.Context) bool { return false }

// MarkIncomplete implements gate.Filter.
func (StubFilter) MarkIncomplete(context.Context, string, time.Time) error { return errOnlyExplained }

// Abandoned implements gate.Filter.
func (StubFilter) Abandoned(context.Context, string, time.Time) error { return errOnlyExplained }

// keyLocker returns the keys that the server would lock. It acquires no lock.
type keyLocker struct{ locking.GateLocker }

func (keyLocker) Acquire(_ context.Context, _ gate.LockRequest, then func(gate.Lease, error)) {
	then(nil, errOnlyExplained)
}

var errOnlyExplained = errors.New("nothing is done here, only explained")

// StubRecorder is a gate.Recorder that records nothing.
type StubRecorder struct{}

// Decided implements gate.Recorder.
func (StubRecorder) Decided(int, gate.Action, gate.Verdict, bool, time.Duration, string) {}

// Refused implements gate.Recorder.
func (StubRecorder) Refused(int, order.Reason) {}

// Closed implements gate.Recorder.
func (StubRecorder) Closed(int, gate.Outcome, bool) {}

// Learned implements gate.Recorder.
func (StubRecorder) Learned(int, error) {}

// Once implements gate.Recorder.
func (StubRecorder) Once(int, gate.OnceResult) {}

// Policies returns the policies of a configuration. It opens no connection.
func Policies(c *config.Config) ([]gate.Policy, error) {
	return rules.Policies(context.Background(), c, Offline{Config: c})
}

// Offline are the components of policies of a configuration that open no connection.
type Offline struct{ Config *config.Config }

// Filter implements rules.Components.
func (Offline) Filter(string) gate.Filter { return StubFilter{} }

// Lookup implements rules.Components.
func (Offline) Lookup(*config.Rule, *gate.Answers) gate.Lookup {
	return gate.Lookup{Filter: StubFilter{}}
}

// Confirmer implements rules.Components.
func (Offline) Confirmer(*config.Rule) (gate.Confirmer, error) { return nil, nil }

// Locker implements rules.Components.
func (o Offline) Locker(_ context.Context, name string, r *config.Rule, observe bool) (gate.Locker, error) {
	return keyLocker{locking.KeyLocker(o.Config, name, r, observe)}, nil
}

// Conditions implements rules.Components.
func (Offline) Conditions(*config.Rule, []condition.Condition) gate.Conditions { return nil }

// Prepared is a configuration that requests are held against. It is safe for concurrent use.
type Prepared struct {
	config   *config.Config
	policies []gate.Policy
	rules    []order.Rule
	gate     *gate.Gate
	table    *order.Table
}

// Prepare prepares a configuration.
func Prepare(c *config.Config) (p *Prepared, err error) {
	p = &Prepared{config: c}
	if p.policies, err = Policies(c); err != nil {
		return nil, err
	}
	if p.gate, err = gate.New(p.policies, StubRecorder{}, time.Now); err != nil {
		return nil, err
	}
	for _, policy := range p.policies {
		p.rules = append(p.rules, policy.Rule)
	}
	p.table, err = order.NewTable(p.rules)
	return p, err
}

// Explain is [Explainer.ExplainBy] for one request.
func (q *Explainer) Explain(ctx context.Context, c *config.Config) (*Explanation, error) {
	p, err := Prepare(c)
	if err != nil {
		return nil, err
	}
	return q.ExplainBy(ctx, p)
}

// ExplainBy calls Screen and Open of the gate, as the adapters of ext_authz and ext_proc do.
// It then finds the IDs, the lock keys and the part of the request behind the decision.
func (q *Explainer) ExplainBy(ctx context.Context, by *Prepared) (*Explanation, error) {
	q.gate, q.rules, q.table = by.gate, by.rules, by.table
	c, policies := by.config, by.policies
	e := &Explanation{
		Method: q.Method, Target: admin.Visible(q.Target),
		Actions: []string{}, Found: []found{}, IDs: []string{}, LockKeys: []string{}, Forgets: []string{}, Near: []neighbour{}, grpc: gate.IsGRPC(&q.Request),
	}
	decision, m, call := Judge(ctx, q.gate, q.Request)
	if m.Rule < 0 {
		return e, q.explainUnmatched(e)
	}
	p := &policies[m.Rule]
	e.rule = &c.Rules[m.Rule]
	e.DescribeRule(e.rule)
	e.settle, e.create = c.Rules[m.Rule].Settle, c.Rules[m.Rule].Create
	p = e.share(q, p, &decision, m)
	e.ids(q.find(&p.Rule), &p.Rule, m)
	if call.NeedsLock {
		e.locks(call, p)
	}
	if decision.Reason == order.NoReason {
		e.explainUndecided(p, call)
		return e, nil
	}
	e.setVerdict(e.replyTo(p, &decision))
	e.Reason, e.Because = new(decision.Reason.Name()), decision.Reason.String()
	q.locateFault(e, p, decision.Reason, m)
	return e, nil
}

// Judge returns the gate's decision on a request, without its filter and locks if they decide.
func Judge(ctx context.Context, g *gate.Gate, req order.Request) (gate.Decision, order.Match, *gate.Call) {
	call := g.Open(req)
	seen := req
	if req.BodyState == order.BodyComplete && len(req.Body) == 0 { // ext_authz does not see that there is none
		seen.BodyState = order.BodyUnseen
	}
	d := g.Screen(ctx, seen)
	if d.Reason == order.NoReason {
		seen = req
		d = g.Screen(ctx, seen)
	}
	m := g.Match(seen)
	if d.Reason == order.NoReason && call.Decision.Reason != order.NoReason { // of its key, or its headers
		d.Reason, d.Verdict = call.Decision.Reason, call.Decision.Verdict
	}
	return d, m, call
}

// locks adds the locks that the call takes, and the stored answers that it looks for or deletes.
func (e *Explanation) locks(call *gate.Call, p *gate.Policy) {
	e.places, e.values = call.AnswerPlaces(), call.ConditionHeaders()
	e.LockKey, e.OnceKey, e.LimitKey = new(call.Key()), admin.NilIf("", call.OnceKey()), admin.NilIf("", call.LimitKey())
	if p.Settle == nil {
		return
	}
	for _, id := range e.IDs {
		key := p.Settle.Lock.Key(id)
		e.LockKeys = append(e.LockKeys, key)
		if p.Settle.Once == nil {
			continue
		}
		for _, name := range p.Settle.Once.Forget {
			if name == gate.AllAnswers {
				continue
			}
			e.Forgets = append(e.Forgets, redislock.StoredKey(key, name))
			e.places = append(e.places, gate.AnswerPlace{LockKey: key, Name: name})
		}
	}
}

// explainUnmatched explains a request that no rule guards. It names the rule that exempts
// the request, if there is one.
func (q *Explainer) explainUnmatched(e *Explanation) error {
	e.setVerdict(possible{Verdict: gate.VerdictNone.String()})
	e.Because = "no rule matches its method, host and path: the request goes on"
	if q.Host == "" && slices.ContainsFunc(q.rules, func(r order.Rule) bool { return r.Host != "" }) {
		e.Because += " (rules with match.host want -H 'host: ...')"
	}
	guarding := slices.Clone(q.rules)
	for i := range guarding {
		guarding[i].Pass = false
	}
	table, err := order.NewTable(guarding)
	if err != nil {
		return err
	}
	m := table.Match(q.Request)
	matches := !m.Screening && m.Reason != order.PathNear && m.Reason != order.OtherMethod
	if m.Rule >= 0 && q.rules[m.Rule].Pass && matches {
		e.Rule = &q.rules[m.Rule].Name
		e.Because = "the rule exempts it: the request goes on"
		return nil
	}
	e.Near = q.neighbours()
	return nil
}

// DescribeRule adds what a rule does.
func (e *Explanation) DescribeRule(r *config.Rule) {
	e.Rule, e.Mode, e.Answers = &r.Name, new(r.Mode.String()), meaningsOf(r.Answer)
	for _, a := range []struct {
		name string
		has  bool
	}{{"lookup", r.Lookup != nil}, {"create", r.Create != nil}, {"settle", r.Settle != nil}, {"once", r.Once != nil}} {
		if a.has {
			e.Actions = append(e.Actions, a.name)
		}
	}
}

func (e *Explanation) ids(all []found, rule *order.Rule, m order.Match) {
	e.Found = append(e.Found, all...)
	if len(all) > 0 && roleOf(rule, all[0].id) == roleOrder {
		e.RawID = &all[0].Raw
	}
	if m.Result == order.Named {
		e.ID, e.IDs = &m.ID, []string{m.ID}
		if len(m.Batch) > 0 {
			e.IDs = m.Batch
		}
	}
}

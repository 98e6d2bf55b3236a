package command

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/internal/accesslog"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/rules"
)

// replayer runs requests of a log through the rules, and counts. Its memory is bounded.
type replayer struct {
	config  *config.Config // all rules enforced
	gate    *gate.Gate
	host    string // of requests whose log shows none
	once    bool   // the log is read once
	rules   []ruleReplay
	filters map[string]*replayFilter
	means   gate.Meaning // of the present request's answer

	settled *callWindows // by lock key
	created *callWindows // by client, or by order
	refused orderCount
	peak    peakMinute
	faults  map[faultKey]*faultCount
	report  replayReport
}

// ruleReplay is what a rule needs, and what became of its requests.
type ruleReplay struct {
	*ruleReport
	policy   *gate.Policy
	filter   *replayFilter   // that has the orders of its requests; nil: unknown
	needs    accesslog.Parts // the parts of a request, beside its target, with its order and its conditions
	onceBy   accesslog.Parts // those with its key
	once     *config.Once    // the stored answer of an order; nil: none
	overlaps orderCount
	repeats  orderCount
}

// shownCapacity is the number of orders that the log can show before more lookups of absent ones
// count as of orders that exist.
const shownCapacity = 4_000_000

// replayFilter answers by a set of orders, or by what the log shows.
type replayFilter struct {
	explain.StubFilter
	set   *filter.Filter // nil: the log shows which orders exist
	shown *bloom.Filter
	run   *replayer
}

// MayContain implements gate.Filter.
func (f *replayFilter) MayContain(id string) presence.Answer {
	switch {
	case f.set != nil:
		return f.set.MayContain(id)
	case f.shown.MayContain(id):
		return presence.Maybe
	case f.run.means == gate.MeansAbsent:
		return presence.Absent
	}
	return presence.Unknown
}

// Query implements gate.Filter.
func (f *replayFilter) Query(_ context.Context, id string) presence.Answer { return f.MayContain(id) }

// Sample implements gate.Verifier: every refusal counts.
func (*replayFilter) Sample() bool { return false }

// Answered implements gate.Verifier. It takes what the backend's answer means.
func (f *replayFilter) Answered(id string, means gate.Meaning) bool {
	if f.run.means = means; means == gate.MeansDone && f.set == nil {
		f.shown.Add(id)
	}
	return false
}

// replayComponents are the components of a replay's policies.
type replayComponents struct {
	explain.Offline
	filters map[string]*replayFilter
}

func (c replayComponents) Filter(name string) gate.Filter { return c.filters[name] }

func (c replayComponents) Lookup(r *config.Rule, _ *gate.Answers) gate.Lookup {
	f := c.filters[r.Lookup.Filter]
	return gate.Lookup{Filter: f, Verify: f}
}

// newReplayer prepares the rules, as if all of them were enforced.
func newReplayer(c *config.Config, sets map[string]*filter.Filter, host string) (*replayer, error) {
	enforced := *c
	enforced.Rules = slices.Clone(c.Rules)
	r := &replayer{
		config: &enforced, host: host, once: sets != nil, filters: make(map[string]*replayFilter),
		settled: newCallWindows(), created: newCallWindows(), refused: newOrderCount(), faults: make(map[faultKey]*faultCount),
	}
	r.peak.minutes = make(map[int64]*[2]int64)
	for name := range c.Filters {
		f := &replayFilter{set: sets[name], run: r}
		if f.set == nil {
			var err error
			if f.shown, err = bloom.New(bloom.Params{Capacity: shownCapacity, FalsePositiveRate: 0.001}); err != nil {
				return nil, err
			}
		}
		r.filters[name] = f
	}
	for i := range enforced.Rules {
		if !enforced.Rules[i].Mode.Enforces() || enforced.Rules[i].Mode.IsPartial() {
			enforced.Rules[i].Mode = config.Mode{Word: config.ModeEnforce}
			r.report.Observed = append(r.report.Observed, enforced.Rules[i].Name)
		}
	}
	policies, err := rules.Policies(context.Background(), &enforced, replayComponents{explain.Offline{Config: &enforced}, r.filters})
	if err != nil {
		return nil, err
	}
	for i := range policies {
		rule := &enforced.Rules[i]
		r.rules = append(r.rules, r.prepare(rule, &policies[i]))
	}
	r.gate, err = gate.New(policies, explain.StubRecorder{}, time.Now)
	return r, err
}

// prepare returns the counts of a rule.
func (r *replayer) prepare(rule *config.Rule, p *gate.Policy) ruleReplay {
	rr := ruleReplay{
		ruleReport: &ruleReport{Rule: rule.Name, Actions: []string{}, Verdicts: make(map[string]int64), orders: newOrderCount(), fromHost: p.Rule.Host != ""},
		policy:     p, overlaps: newOrderCount(), repeats: newOrderCount(),
	}
	r.report.Rules = append(r.report.Rules, rr.ruleReport)
	e := explain.Explanation{Actions: []string{}}
	if e.DescribeRule(rule); !rule.Pass {
		rr.Actions = e.Actions
	}
	need := func(id *order.ID) {
		switch id.In {
		case order.InHeader:
			rr.needs.Header = true
		case order.InCookie:
			rr.needs.Cookies = true
		case order.InForm, order.InJSON:
			rr.needs.Body = true
		}
	}
	for i := range p.Rule.IDs {
		need(&p.Rule.IDs[i])
	}
	for i := range p.Rule.Parts {
		need(&p.Rule.Parts[i].ID)
	}
	if p.Rule.Limit != nil {
		need(p.Rule.Limit)
	}
	if p.Settle != nil && p.Settle.Require != nil && len(p.Settle.Require.Headers) > 0 {
		rr.needs.Header = true
	}
	if by, _ := rule.ByKey(); by != nil {
		rr.onceBy = accesslog.Parts{Header: true, Cookies: true, Body: slices.Contains(by.By, config.OnceBody) || by.Fingerprint == config.FingerprintBody}
		rr.needs.Header = rr.needs.Header || by.Required
	}
	rr.once, _ = rule.ByOrder()
	switch {
	case rule.Lookup != nil:
		rr.filter = r.filters[rule.Lookup.Filter]
	case rule.Create != nil:
		rr.filter = r.filters[rule.Create.Filter]
	case len(r.filters) == 1 && rule.Settle != nil && !rule.IsBy():
		rr.filter = r.filters[slices.Collect(maps.Keys(r.filters))[0]]
	}
	return rr
}

// withoutBody stands for the headers of a request of which the log shows neither headers nor a body.
var withoutBody = order.HeaderList{{"content-length", "0"}}

// request returns the request of an entry, as a gate would see it.
func (r *replayer) request(e *accesslog.Entry) order.Request {
	req := order.Request{Method: e.Method, Host: e.Host, Target: e.Target, Header: e.Header, Body: e.Body, BodyState: order.BodyComplete}
	if req.Host == "" {
		req.Host = r.host
	}
	if e.Header == nil {
		req.Header = withoutBody
	}
	return req
}

// note takes what the answer of a request shows about its order.
func (r *replayer) note(_ string, e *accesslog.Entry) {
	req := r.request(e)
	r.means = gate.MeansNothing
	r.gate.Answered(req, &gate.Response{Status: e.Status, Details: e.Details, Attempts: -1, AttemptHeader: -1})
	if e.Status/100 != 2 || e.Details != accesslog.ViaUpstream {
		return
	}
	m := r.gate.Match(req)
	if m.Rule < 0 || m.Result != order.Named {
		return
	}
	rr := &r.rules[m.Rule]
	if rr.filter == nil || rr.filter.set != nil || rr.policy.Settle == nil && rr.policy.Create == nil || rr.policy.Answers != nil {
		return
	}
	rr.filter.shown.Add(m.ID)
	for _, id := range m.Batch {
		rr.filter.shown.Add(id)
	}
}

// judge decides on a request as explain does, and counts the decision.
func (r *replayer) judge(log string, e *accesslog.Entry) {
	r.report.seen(e)
	if r.once {
		r.note(log, e)
	}
	req := r.request(e)
	r.means = gate.MeansNothing
	r.gate.Answered(req, &gate.Response{Status: e.Status, Details: e.Details, Attempts: -1, AttemptHeader: -1})
	d, m, call := explain.Judge(context.Background(), r.gate, req)
	if m.Rule < 0 {
		r.report.Unmatched++
		r.peak.add(e.Start, false)
		return
	}
	rr := &r.rules[m.Rule]
	rr.Requests++
	spared := false
	switch hidden := rr.hides(d.Reason, &m, e.Shows); {
	case hidden:
		rr.Hidden++
		if rr.policy.Create != nil {
			r.create(rr, e, &req, "")
		}
	case d.Reason != order.NoReason:
		rr.Verdicts[d.Verdict.String()]++
		r.fault(log, e, m.Rule, d.Reason)
		spared = true
	case d.Verdict == gate.VerdictAbsent:
		rr.Verdicts[d.Verdict.String()]++
		spared = true
		r.absent(rr, log, e, &m)
	default:
		if rr.policy.Lookup != nil {
			rr.Verdicts[d.Verdict.String()]++
		}
		spared = r.goesOn(rr, e, &req, &m, call)
	}
	r.peak.add(e.Start, spared)
}

// goesOn counts a request that the rules let pass, as far as its lock. It reports whether a stored
// answer would spare it the backend.
func (r *replayer) goesOn(rr *ruleReplay, e *accesslog.Entry, req *order.Request, m *order.Match, call *gate.Call) (spared bool) {
	if rr.policy.Create != nil {
		r.create(rr, e, req, m.ID)
	}
	if rr.policy.Settle == nil || !call.NeedsLock || m.Result != order.Named {
		return false
	}
	rr.Settled++
	ids := m.Batch
	if len(ids) == 0 {
		ids = []string{m.ID}
	}
	for _, id := range ids {
		spared = r.settle(rr, e, rr.policy.Settle.Lock.Key(id)) || spared
	}
	return spared && rr.once != nil && len(rr.once.Forget) == 0
}

// absent counts a lookup that is refused.
func (r *replayer) absent(rr *ruleReplay, log string, e *accesslog.Entry, m *order.Match) {
	ids := m.Batch
	if len(ids) == 0 {
		ids = []string{m.ID}
	}
	for _, id := range ids {
		r.refused.add(hashOf(id))
	}
	if r.means != gate.MeansDone {
		return
	}
	if rr.Contradicted++; rr.Contradicted == 1 {
		rr.FirstContradicted = &place{log, e.Line}
	}
}

// hides reports whether a part of the request that the log does not show decides.
func (rr *ruleReplay) hides(why order.Reason, m *order.Match, shows accesslog.Parts) bool {
	lacks := rr.needs.Header && !shows.Header || rr.needs.Cookies && !shows.Cookies || rr.needs.Body && !shows.Body
	switch why {
	case order.NoReason:
		return lacks && m.Result == order.Anonymous
	case order.MissingID, order.MissingPart, order.MissingLimit, order.MissingHeader, order.MissingKey:
		return lacks
	}
	switch why.Part() {
	case "header":
		return !shows.Header
	case "cookie":
		return !shows.Cookies
	case "body":
		return !shows.Body
	}
	return false
}

var hashSeed = maphash.MakeSeed()

func hashOf(texts ...string) uint64 { return maphash.String(hashSeed, strings.Join(texts, "\x00")) }

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ordergate/ordergate/internal/accesslog"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/order"

	"github.com/ordergate/ordergate/internal/admin"
)

// replayReport is the JSON of replay.
type replayReport struct {
	Logs      []logReport   `json:"logs"`
	Orders    string        `json:"orders"` // where the existing orders are from
	Requests  int64         `json:"requests"`
	First     *time.Time    `json:"first"` // null: no line has a time
	Last      *time.Time    `json:"last"`
	Unmatched int64         `json:"unmatched"`
	Observed  []string      `json:"observed_rules"` // that the file only observes
	Rules     []*ruleReport `json:"rules"`
	Lookups   lookupReport  `json:"lookups"`
	Faults    []faultReport `json:"refused"`
	Peak      *peakReport   `json:"peak"`
	Forgotten bool          `json:"orders_forgotten"` // there were too many for all settlements to be compared

	formats map[accesslog.Format]int64
	noHost  int64
	noTime  int64
}

type logReport struct {
	Name      string `json:"name"`
	Lines     int64  `json:"lines"`
	Long      int64  `json:"long_lines"`
	FirstLong int64  `json:"first_long_line"`
	Odd       int64  `json:"odd_lines"`
	FirstOdd  int64  `json:"first_odd_line"`
	OddText   string `json:"first_odd_text"`
	Cut       string `json:"cut"`
}

// count is a number of different orders.
type count struct {
	Number  int64 `json:"number"`
	AtLeast bool  `json:"at_least"`
}

func (c count) String() string {
	text := thousands(c.Number) + " order"
	if c.Number != 1 {
		text += "s"
	}
	if c.AtLeast {
		return "at least " + text
	}
	return text
}

type ruleReport struct {
	Rule     string           `json:"rule"`
	Actions  []string         `json:"actions"`
	Requests int64            `json:"requests"`
	Verdicts map[string]int64 `json:"verdicts"` // of the lookup, and of a request that is refused
	Hidden   int64            `json:"hidden"`   // the order, or what a condition needs, is in a part that the log does not show

	Contradicted      int64  `json:"refused_though_answered"` // refused though the backend has the order
	FirstContradicted *place `json:"first_refused_though_answered"`

	Settled          int64 `json:"settlements"`
	SettledOrders    count `json:"settled_orders"`
	Overlapped       int64 `json:"overlapped"`
	OverlappedOrders count `json:"overlapped_orders"`
	BySecond         int64 `json:"without_duration"` // compared by the second
	Repeated         int64 `json:"repeated"`
	RepeatedOrders   count `json:"repeated_orders"`
	Timeless         int64 `json:"without_time"`

	Created    int64 `json:"creates"`
	Doubled    int64 `json:"doubled"`
	Clientless int64 `json:"creates_without_client"`

	orders   orderCount
	stores   bool
	fromHost bool
}

type place struct {
	Log  string `json:"log"`
	Line int64  `json:"line"`
}

func (p place) String() string { return fmt.Sprintf("%s, line %d", nameOfLog(p.Log), p.Line) }

type lookupReport struct {
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
	Orders   count `json:"refused_orders"`
	Unknown  int64 `json:"unknown"` // the answer does not tell
}

type peakReport struct {
	Minute   time.Time `json:"minute"`
	Requests int64     `json:"requests"`
	Spared   int64     `json:"spared"`
	Rate     float64   `json:"spared_per_second"`
}

// faultKey is a reason for which requests of a rule are refused.
type faultKey struct {
	rule int
	why  order.Reason
}

type faultCount struct {
	faultKey
	n     int64
	first place
	entry accesslog.Entry
}

// faultReport is a reason, with its first request as explain marks it.
type faultReport struct {
	Rule      string  `json:"rule"`
	Reason    string  `json:"reason"`
	Because   string  `json:"because"`
	Requests  int64   `json:"requests"`
	First     place   `json:"first"`
	Part      *string `json:"part"`
	PartText  *string `json:"part_text"`
	Offset    *int    `json:"offset"`
	Byte      *string `json:"byte"`
	Piece     *string `json:"piece"`
	explained *explain.Explanation
}

// seen counts a request of the log.
func (r *replayReport) seen(e *accesslog.Entry) {
	r.Requests++
	if r.formats == nil {
		r.formats = make(map[accesslog.Format]int64)
	}
	r.formats[e.Format]++
	if e.Host == "" {
		r.noHost++
	}
	switch {
	case e.Start.IsZero():
		r.noTime++
	case r.First == nil:
		r.First, r.Last = new(e.Start), new(e.Start)
	case e.Start.Before(*r.First):
		*r.First = e.Start
	case e.Start.After(*r.Last):
		*r.Last = e.Start
	}
}

func (r *replayReport) addLog(name string, c accesslog.Counts) {
	r.Logs = append(r.Logs, logReport{name, c.Lines, c.Long, c.FirstLong, c.Odd, c.FirstOdd, visible(c.OddText), c.Cut})
}

// incomplete is the error for a log that ends early.
func (r *replayReport) incomplete() error {
	for _, l := range r.Logs {
		if l.Cut != "" {
			return errors.New("replay: " + l.Name + ": " + l.Cut)
		}
	}
	return nil
}

// fault counts a request that is refused for its spelling, and keeps the first of each reason.
func (r *replayer) fault(log string, e *accesslog.Entry, rule int, why order.Reason) {
	key := faultKey{rule, why}
	f := r.faults[key]
	if f == nil {
		f = &faultCount{faultKey: key, first: place{log, e.Line}, entry: *e}
		r.faults[key] = f
	}
	f.n++
}

// finish completes the report.
func (r *replayer) finish(ctx context.Context) (*replayReport, error) {
	report := &r.report
	report.Forgotten = r.settled.dropped
	for i := range r.rules {
		rr := &r.rules[i]
		rr.SettledOrders, rr.OverlappedOrders, rr.RepeatedOrders = rr.orders.number(), rr.overlaps.number(), rr.repeats.number()
		rr.stores = rr.once != nil && len(rr.once.Forget) == 0
		if rr.policy.Lookup != nil {
			for verdict, n := range rr.Verdicts {
				report.Lookups.Requests += n
				switch verdict {
				case "absent":
					report.Lookups.Refused += n
				case "unknown":
					report.Lookups.Unknown += n
				}
			}
		}
	}
	report.Lookups.Orders = r.refused.number()
	faults := slices.SortedFunc(maps.Values(r.faults), func(a, b *faultCount) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.first.Line, b.first.Line), cmp.Compare(a.why, b.why))
	})
	for _, f := range faults {
		q := &explain.Explainer{Request: r.request(&f.entry)}
		q.Headers, _ = q.Header.(order.HeaderList)
		e, err := q.Explain(ctx, r.config)
		if err != nil {
			return nil, err
		}
		report.Faults = append(report.Faults, faultReport{
			r.rules[f.rule].Rule, f.why.Name(), e.Because, f.n, f.first, e.Part, e.PartText, e.Offset, e.Byte, e.Piece, e,
		})
	}
	if minute, all, spared, ok := r.peak.most(); ok {
		report.Peak = &peakReport{time.Unix(minute*60, 0).In(report.First.Location()), all, spared, float64(spared) / 60}
	}
	return report, nil
}

func thousands(n int64) string { return admin.Grouped(uint64(n)) }

// maxFaults bounds the reasons that the text shows.
const maxFaults = 10

func (r *replayReport) print(w io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s%s\n", name, fmt.Sprintf(format, args...))
	}
	r.printLogs(line)
	line("orders", "%s", r.Orders)
	if len(r.Observed) > 0 {
		line("rules", "as if all were enforced; the file only observes %s", strings.Join(r.Observed, ", "))
	}
	if r.Requests == r.Unmatched {
		line("", "no request matches a rule: ordergate init --log proposes rules for a log")
	}
	b.WriteByte('\n')
	r.printRules(&b)
	b.WriteByte('\n')
	if l := r.Lookups; l.Requests > 0 {
		line("lookups", "%s of %s refused (%s), of %s", thousands(l.Refused), thousands(l.Requests), admin.Percent(float64(l.Refused)/float64(l.Requests)), l.Orders)
		if l.Unknown > 0 {
			line("", "%s go on: their answers do not show whether the order exists (--sources or --csv does)", thousands(l.Unknown))
		}
	}
	for _, rr := range r.Rules {
		rr.print(line)
	}
	if r.Forgotten {
		line("", "not all settlements were compared: only those of the last %s orders at least", thousands(maxOrders))
	}
	for i, f := range r.Faults {
		if i == maxFaults {
			line("", "%d more reasons: --json has them", len(r.Faults)-i)
			break
		}
		line("refused", "%s of %s: %s: %s", thousands(f.Requests), f.Rule, f.Reason, f.Because)
		line("first", "%s", f.First)
		f.explained.PrintFault(line)
	}
	if p := r.Peak; p != nil {
		line("peak", "%s: %s of %s requests spared the backend, %.1f a second", p.Minute.Format("2006-01-02 15:04 -0700"), thousands(p.Spared), thousands(p.Requests), p.Rate)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *replayReport) printLogs(line func(name, format string, args ...any)) {
	for _, l := range r.Logs {
		line("log", "%s, %s lines", l.Name, thousands(l.Lines))
		if l.Long > 0 {
			line("", "%s lines of more than %d bytes skipped, the first is line %d", thousands(l.Long), accesslog.MaxLine, l.FirstLong)
		}
		if l.Odd > 0 {
			line("", "%s lines are no requests, the first is line %d: %s", thousands(l.Odd), l.FirstOdd, l.OddText)
		}
		if l.Cut != "" {
			line("", "%s", l.Cut)
		}
	}
	var forms []string
	for _, f := range slices.Sorted(maps.Keys(r.formats)) {
		forms = append(forms, fmt.Sprintf("%s of form %s", thousands(r.formats[f]), f))
	}
	line("requests", "%s", strings.Join(forms, ", "))
	if r.First != nil {
		line("time", "%s to %s", r.First.Format("2006-01-02 15:04:05 -0700"), r.Last.In(r.First.Location()).Format("2006-01-02 15:04:05 -0700"))
	}
	if r.noTime > 0 {
		line("", "%s requests have no time that could be read", thousands(r.noTime))
	}
}

func (r *replayReport) printRules(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tACTION\tREQUESTS\tVERDICTS")
	for _, rr := range r.Rules {
		var verdicts []string
		for _, v := range slices.Sorted(maps.Keys(rr.Verdicts)) {
			verdicts = append(verdicts, v+" "+thousands(rr.Verdicts[v]))
		}
		if rr.Hidden > 0 {
			verdicts = append(verdicts, "not to be seen in a log "+thousands(rr.Hidden))
		}
		if rr.fromHost && r.noHost > 0 {
			verdicts = append(verdicts, fmt.Sprintf("match.host: %s requests have no host (--host)", thousands(r.noHost)))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", rr.Rule, cmp.Or(strings.Join(rr.Actions, ", "), "pass"), thousands(rr.Requests), strings.Join(verdicts, ", "))
	}
	fmt.Fprintf(table, "no rule\t\t%s\t\n", thousands(r.Unmatched))
	_ = table.Flush()
}

func (rr *ruleReport) print(line func(name, format string, args ...any)) {
	if rr.Contradicted > 0 {
		line("WRONG", "%s: %s refused lookups were answered by the backend, the first in %s: the sources lack orders, or the rule reads another ID than theirs", rr.Rule, thousands(rr.Contradicted), rr.FirstContradicted)
	}
	if rr.Settled > 0 {
		how := "by start and duration"
		switch rr.BySecond {
		case 0:
		case rr.Settled:
			how = "within the same second, as the log has no durations"
		default:
			how += "; by the second where a line has no duration: " + thousands(rr.BySecond)
		}
		line("settlements", "%s: %s of %s", rr.Rule, thousands(rr.Settled), rr.SettledOrders)
		line("", "%s overlapped another one of their order (%s): %s", thousands(rr.Overlapped), how, rr.OverlappedOrders)
		stored := "the stored answer would be given"
		if !rr.stores {
			stored = "settle.once would give its stored answer"
		}
		line("", "%s came after one that succeeded (%s): %s", thousands(rr.Repeated), stored, rr.RepeatedOrders)
		if rr.Timeless > 0 {
			line("", "%s without a time were not compared", thousands(rr.Timeless))
		}
	}
	if rr.Created > 0 {
		line("creates", "%s: %s succeeded, %s may be doubled: the same order, or none and the same client within %v", rr.Rule, thousands(rr.Created), thousands(rr.Doubled), doubleClick)
		if rr.Clientless > 0 {
			line("", "%s have no client in the log, and were not compared", thousands(rr.Clientless))
		}
	}
}

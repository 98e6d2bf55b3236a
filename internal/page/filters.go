package page

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/loader"
)

const (
	// countEvery is the shortest interval between two counts of a filter's bits while the page is looked
	// at. A count reads all of its memory, so the interval is at least countShare times as long.
	countEvery = 10 * time.Second
	countShare = 300
)

// filterReport is a report whose bits were counted.
type filterReport struct {
	admin.FilterReport
	due time.Time // of the next count
}

// peersTimeout bounds how long the peers of all filters are read for.
const peersTimeout = 2 * time.Second

// listPeers reads who takes part in the change logs.
func (p *Page) listPeers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, peersTimeout)
	defer cancel()
	all := make(map[string][]changelog.Peer)
	for name := range p.opts.Config().Filters {
		if log := p.opts.Loader(name).Log(); log != nil {
			all[name], _ = log.Peers(ctx) // the log's phase says that Redis does not answer
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers = all
}

// peersOf describes who takes part in a filter's change log, those that are away first. The caller
// holds mu.
func (p *Page) peersOf(name string, now time.Time) (views []peerView) {
	for _, peer := range p.peers[name] {
		v := peerView{Name: peer.Name}
		var does []string
		if v.Away = peer.Member && peer.Left < 0; v.Away {
			does = append(does, "away since "+clock(now.Add(peer.Left)))
		}
		if peer.Window > 0 {
			does = append(does, fmt.Sprintf("refuses for %v after each read", peer.Window))
		}
		v.Does = strings.Join(does, ", ")
		views = append(views, v)
	}
	slices.SortStableFunc(views, func(a, b peerView) int {
		switch {
		case a.Away == b.Away:
			return 0
		case a.Away:
			return -1
		}
		return 1
	})
	return views
}

// peerView is an instance that takes part in a change log.
type peerView struct {
	Name, Does string
	Away       bool
}

// filterView is a filter.
type filterView struct {
	admin.FilterReport
	Since   time.Time
	Asked   float64 // false positive rate
	Sources []loader.SourceState
	Peers   []peerView

	Unsure    string // which made-up IDs are passed on; "": none
	Until     string // what ends that
	Last      change // of the unsure IDs; the state before counts
	NeedsLoad bool   // only an operator can end it
}

// viewOf returns what the page shows of a filter. The caller holds mu.
func (p *Page) viewOf(name string, asked float64, now time.Time) filterView {
	l := p.opts.Loader(name)
	f := l.Filter()
	r := p.reports[name]
	state, reason := f.State()
	if state != r.State || now.After(r.due) {
		began := time.Now()
		r.FilterReport = p.opts.Filter(name)
		r.due = now.Add(max(countEvery, countShare*time.Since(began)))
	}
	r.State, r.Reason, r.IDs = state, reason, f.Count()
	if log := l.Log(); log != nil {
		if r.Log = admin.LogReportOf(log); r.Log.Reason != nil && *r.Log.Reason == reason {
			r.Log.Reason = nil // it is shown once
		}
	}
	p.reports[name] = r
	v := filterView{FilterReport: r.FilterReport, Asked: asked, Sources: l.SourceStates(), Peers: p.peersOf(name, now), Unsure: unsureOf(f, state)}
	p.note("filter "+name, state, now)
	p.note("unsure "+name, v.Unsure, now)
	v.Since, v.Last = p.since["filter "+name].at, p.since["unsure "+name]
	cure, _, doubted := f.Doubts()
	v.NeedsLoad = doubted && cure == filter.ByOperator
	switch {
	case v.Unsure == "":
	case state == filter.StateLoading:
		v.Until = "it is loaded"
	case v.NeedsLoad:
		v.Until = "ordergate load --filter " + name + " has run"
	case doubted && cure == filter.ByReload:
		v.Until = "the sources have been read again"
		if left := f.UntilClearable(); left > 0 {
			v.Until += fmt.Sprintf(", in %.0f s at the earliest: creates still run", left.Seconds())
		}
	case doubted:
		v.Until = "the other instances have reported what they have"
	default:
		v.Until = "the change log can be read to its end"
	}
	return v
}

// Outage says when the filter was unsure before.
func (v filterView) Outage() string {
	if v.Unsure != "" || v.Last.before == "" {
		return ""
	}
	return fmt.Sprintf("passed on last: %s, from %s for %v", v.Last.before, clock(v.Last.beforeAt), v.Last.at.Sub(v.Last.beforeAt).Round(time.Second))
}

// unsureOf returns the IDs that a filter refuses none of; "": there are none.
func unsureOf(f *filter.Filter, state string) string {
	scope, doubted := f.DoubtedScope()
	switch {
	case state != filter.StateReady:
		return "all IDs"
	case doubted:
		return scope.String()
	}
	return ""
}

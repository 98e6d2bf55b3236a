package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
)

// FilterReport is what filter info tells of a filter. All of its keys are always
// there in JSON; null is what a filter does not have.
type FilterReport struct {
	Filter      string   `json:"filter"`
	Kind        string   `json:"kind"`
	State       string   `json:"state"` // loading, ready, unknown
	Reason      string   `json:"reason"`
	IDs         uint64   `json:"ids"`
	Capacity    uint64   `json:"capacity"`
	FillRatio   float64  `json:"fill_ratio"`
	Rate        float64  `json:"estimated_false_positive_rate"` // of all segments together
	Measured    *float64 `json:"measured_false_positive_rate"`  // null: too little was asked for
	MemoryBytes uint64   `json:"memory_bytes"`                  // of this ordergate
	RedisBytes  *uint64  `json:"redis_bytes"`
	Pending     int      `json:"pending"` // learned, and not known to the other ordergates yet

	Log       *LogReport      `json:"log"`
	Expansion ExpansionReport `json:"expansion"`
	Segments  []SegmentReport `json:"segments"` // of what is in memory
	Redis     []SetReport     `json:"redis"`    // the sets in Redis; null: there are none
}

// LogReport tells of a change log.
type LogReport struct {
	Phase    string     `json:"phase"` // loading, following, away, blind, unavailable, broken, stopped
	Position uint64     `json:"position"`
	Tail     uint64     `json:"tail"`
	Lag      uint64     `json:"lag"`       // entries, at the last read
	LastRead *time.Time `json:"last_read"` // when the tail was reached last; null: never
	ReadTook Seconds    `json:"read_took_seconds"`
	Doubts   DoubtCount `json:"doubts"`   // told of since the start
	Members  []string   `json:"members"`  // who may append, as of a second ago
	Owed     int        `json:"owed"`     // IDs that clients may know of and the log does not have
	Repaired uint64     `json:"repaired"` // IDs that the log had lost and got again from here
	Reason   *string    `json:"reason"`   // why it is not followed; null: it is
}

// DoubtCount counts doubts by their kinds.
type DoubtCount struct {
	Term  uint64 `json:"term"`  // Redis was restarted or failed over
	Crash uint64 `json:"crash"` // an ordergate ended without taking its leave
	Lost  uint64 `json:"lost"`  // an ID could not be read, or kept
	Gap   uint64 `json:"gap"`   // entries were missing
	// Running is how many creates were abandoned, which may have made an order later.
	Running uint64 `json:"running"`
}

// ExpansionReport tells how a filter grows.
type ExpansionReport struct {
	Generation int        `json:"generation"`
	Running    bool       `json:"running"`
	From       uint64     `json:"from"`
	To         uint64     `json:"to"`
	Read       uint64     `json:"read"` // IDs, so far
	Began      *time.Time `json:"began"`
	Took       *Seconds   `json:"took_seconds"` // null: it runs, or never did here
	Error      *string    `json:"error"`
}

// SegmentReport tells of a part of a filter in memory.
type SegmentReport struct {
	Name      string  `json:"name"`
	IDs       uint64  `json:"ids"`
	Capacity  uint64  `json:"capacity"`
	Bytes     uint64  `json:"bytes"`
	Layers    int     `json:"layers"`
	FillRatio float64 `json:"fill_ratio"`

	FalsePositiveRate float64 `json:"estimated_false_positive_rate"`
}

// SetReport tells of a set in Redis.
type SetReport struct {
	Key       string  `json:"key"`
	IDs       uint64  `json:"ids"`
	Capacity  uint64  `json:"capacity"`
	Bytes     uint64  `json:"bytes"`
	Shards    int     `json:"shards"`
	Whole     bool    `json:"whole"`
	FillRatio float64 `json:"fill_ratio"`
	Rate      float64 `json:"estimated_false_positive_rate"`
}

func (m *Engine) filterReport(name string) FilterReport {
	unit := m.filters[name]
	i := unit.filter.Info()
	r := FilterReport{
		Filter: name, Kind: m.config.Filters[name].Kind, State: i.State, Reason: i.Reason,
		IDs: i.IDs, Capacity: i.Capacity, FillRatio: i.FillRatio, Rate: i.FalsePositiveRate,
		MemoryBytes: i.MemoryBytes, Pending: i.Pending, Expansion: expansionOf(i.Expansion), Segments: []SegmentReport{},
	}
	if rate := unit.measures.meter.Rate(); !math.IsNaN(rate) {
		r.Measured = &rate
	}
	if unit.log != nil {
		r.Log = logReportOf(unit.log)
	}
	for _, s := range i.Segments {
		r.Segments = append(r.Segments, SegmentReport(s))
	}
	if unit.shared == nil {
		return r
	}
	r.RedisBytes = &i.RemoteBytes
	for _, p := range unit.shared.Info().Parts {
		r.Redis = append(r.Redis, SetReport{p.Key, p.IDs, p.Capacity, p.Bytes, len(p.Shards), p.Whole, p.FillRatio, p.EstimatedFalsePositiveRate})
	}
	p := unit.shared.Progress()
	r.Expansion = ExpansionReport{Generation: p.Generation, Running: p.Next != 0, From: p.From, To: p.To, Read: p.Read}
	if p.Next != 0 {
		r.Expansion.Began = &p.Began
	}
	return r
}

func logReportOf(log *changelog.Log) *LogReport {
	s := log.State()
	r := &LogReport{
		Phase: string(s.Phase), Position: s.Position, Tail: s.Tail, Lag: s.Tail - min(s.Tail, s.Position),
		ReadTook: Seconds(s.ReadTook), Members: log.Members(), Owed: s.Pending, Repaired: s.Repaired,
		Doubts: DoubtCount{s.Doubts[changelog.Failover], s.Doubts[changelog.Crash], s.Doubts[changelog.Lost], s.Doubts[changelog.Gap], s.Doubts[changelog.Running]},
	}
	if !s.LastRead.IsZero() {
		r.LastRead = &s.LastRead
	}
	if s.Err != nil {
		r.Reason = new(s.Err.Error())
	}
	return r
}

func expansionOf(e filter.Expansion) ExpansionReport {
	r := ExpansionReport{Generation: e.Generation, Running: e.Running, From: e.From, To: e.To, Read: e.Read}
	if !e.Began.IsZero() {
		r.Began = &e.Began
		if !e.Running {
			r.Took = new(SecondsOf(e.Took))
		}
	}
	if e.Err != "" {
		r.Error = &e.Err
	}
	return r
}

// ContainsReport is the answer to whether an ID is there.
type ContainsReport struct {
	Filter string `json:"filter"`
	ID     string `json:"id"`
	Answer string `json:"answer"` // absent, maybe, unknown
	Reason string `json:"reason"` // of unknown, and why no request asks for such an ID
}

// withFilters adds what `ordergate filter` asks the process for to a handler.
func (m *Engine) withFilters(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(r *http.Request, name string) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { m.answer(w, r, answer) })
	}
	handle("GET /filters/{name}", func(_ *http.Request, name string) (any, error) { return m.filterReport(name), nil })
	handle("GET /filters/{name}/contains", m.serveContains)
	handle("POST /filters/{name}/ids", m.serveAdd)
	handle("POST /filters/{name}/load", m.serveLoad)
	handle("POST /v1/filters/{name}/ids", m.serveAnnounce)
	handle("POST /filters/{name}/expand", m.serveExpand)
	handle("POST /filters/{name}/trust", m.serveTrust)
	handle("POST /filters/{name}/snapshot", m.serveSnapshot)
	mux.Handle("/", next)
	return mux
}

// statusError is an error with the status of the answer to it.
type statusError struct {
	error
	status int
}

func (m *Engine) answer(w http.ResponseWriter, r *http.Request, answer func(*http.Request, string) (any, error)) {
	name := r.PathValue("name")
	var body any
	err := error(statusError{fmt.Errorf("there is no filter %q", name), http.StatusNotFound})
	if m.filters[name] != nil {
		body, err = answer(r, name)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = WriteJSON(w, body) // the client may be gone
}

// refuse answers with an error, and its status if it has one.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var with statusError
	if errors.As(err, &with) {
		status = with.status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = WriteJSON(w, Refusal{err.Error()}) // the client may be gone
}

func (m *Engine) serveContains(r *http.Request, name string) (any, error) {
	id := r.URL.Query().Get("id")
	f := m.filters[name].filter
	report := ContainsReport{Filter: name, ID: id, Answer: f.Query(r.Context(), id).String()}
	valid, err := m.validIDs(name)
	switch {
	case err != nil:
		return nil, err
	case !valid(id):
		report.Reason = "no rule takes such an ID, so a request with it is refused"
	case report.Answer == filter.Unknown.String():
		_, report.Reason = f.State()
	}
	return report, nil
}

// serveExpand goes on when whoever asked has gone: to begin is what was asked for. It
// ends with the engine, as another ordergate can end what was begun.
func (m *Engine) serveExpand(r *http.Request, name string) (any, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	expanded := make(chan error, 1)
	m.wg.Go(func() { expanded <- m.filters[name].filter.Expand(ctx) }) // close waits for it
	var err error
	select {
	case err = <-expanded:
	case <-m.ending:
		cancel()
		err = <-expanded
	}
	if err != nil {
		if errors.Is(err, filter.ErrNoGrowth) || errors.Is(err, filter.ErrAtMax) {
			err = statusError{err, http.StatusConflict}
		}
		return nil, err
	}
	return m.filterReport(name), nil
}

func (m *Engine) serveTrust(r *http.Request, name string) (any, error) {
	set := m.filters[name].shared
	if set == nil {
		return nil, statusError{errors.New("only a filter in Redis is filled by others"), http.StatusConflict}
	}
	if err := set.Trust(r.Context()); err != nil {
		if errors.Is(err, redisset.ErrFilled) {
			err = statusError{err, http.StatusConflict}
		}
		return nil, err
	}
	m.log.Warn("an operator declared the filter in Redis whole", "filter", name)
	return m.filterReport(name), nil
}

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/runbook"
)

// FilterReport is the result of `ordergate filter info`. Its JSON always has all keys; null stands
// for what a filter does not have.
type FilterReport struct {
	Filter      string   `json:"filter"`
	Kind        string   `json:"kind"`
	State       string   `json:"state"` // loading, ready, unknown
	Reason      string   `json:"reason"`
	IDs         uint64   `json:"ids"`
	Capacity    uint64   `json:"capacity"`
	FillRatio   float64  `json:"fill_ratio"`
	Rate        float64  `json:"estimated_false_positive_rate"` // of all segments together
	Measured    *float64 `json:"measured_false_positive_rate"`  // null: too few lookups
	MemoryBytes uint64   `json:"memory_bytes"`                  // in this process
	RedisBytes  *uint64  `json:"redis_bytes"`
	Pending     int      `json:"pending"` // learned IDs that the other instances do not have yet

	Log       *LogReport      `json:"log"`
	Expansion ExpansionReport `json:"expansion"`
	Segments  []SegmentReport `json:"segments"` // in memory
	Redis     []SetReport     `json:"redis"`    // the sets in Redis; null: none
}

// LogReport describes a change log.
type LogReport struct {
	Phase         string     `json:"phase"` // loading, following, away, blind, unavailable, broken, stopped
	Position      uint64     `json:"position"`
	Tail          uint64     `json:"tail"`
	Lag           uint64     `json:"lag"`       // entries, at the last read
	LastRead      *time.Time `json:"last_read"` // when the reader last reached the tail; null: never
	ReadTook      Seconds    `json:"read_took_seconds"`
	Doubts        DoubtCount `json:"doubts"`   // reported since the start
	Members       []string   `json:"members"`  // instances that may append, as of a second ago
	PendingWrites int        `json:"owed"`     // IDs that clients may have and the log lacks
	Repaired      uint64     `json:"repaired"` // IDs that this process appended again after the log had lost them
	Reason        *string    `json:"reason"`   // why the reader does not follow the log; null: it does
}

// DoubtCount counts doubts by kind.
type DoubtCount struct {
	Failover uint64 `json:"term"`  // Redis was restarted or failed over
	Crash    uint64 `json:"crash"` // a member ended, or was away for too long, without deregistering
	Lost     uint64 `json:"lost"`  // the ID of a created order could not be read or stored
	Gap      uint64 `json:"gap"`   // entries were missing, or another log replaced this one
	// Running counts abandoned creates: each may have created an order later.
	Running uint64 `json:"running"`
}

// ExpansionReport describes the last expansion of a filter.
type ExpansionReport struct {
	Generation int        `json:"generation"`
	Running    bool       `json:"running"`
	From       uint64     `json:"from"`
	To         uint64     `json:"to"`
	Read       uint64     `json:"read"` // IDs, so far
	Began      *time.Time `json:"began"`
	Took       *Seconds   `json:"took_seconds"` // null: it still runs, or this process ran none
	Error      *string    `json:"error"`
}

// SegmentReport describes a segment of a filter in memory.
type SegmentReport struct {
	Name      string  `json:"name"`
	IDs       uint64  `json:"ids"`
	Capacity  uint64  `json:"capacity"`
	Bytes     uint64  `json:"bytes"`
	Layers    int     `json:"layers"`
	FillRatio float64 `json:"fill_ratio"`

	FalsePositiveRate float64 `json:"estimated_false_positive_rate"`
}

// SetReport describes a set in Redis.
type SetReport struct {
	Key       string  `json:"key"`
	IDs       uint64  `json:"ids"`
	Capacity  uint64  `json:"capacity"`
	Bytes     uint64  `json:"bytes"`
	Shards    int     `json:"shards"`
	Complete  bool    `json:"whole"`
	FillRatio float64 `json:"fill_ratio"`
	Rate      float64 `json:"estimated_false_positive_rate"`
}

// FilterReport describes a filter of the configuration.
func (s *Server) FilterReport(name string) FilterReport {
	f := s.Filters[name]
	set := f.Set()
	i := f.Filter().Info()
	r := FilterReport{
		Filter: name, Kind: s.Config.Filters[name].Kind, State: i.State, Reason: i.Reason,
		IDs: i.IDs, Capacity: i.Capacity, FillRatio: i.FillRatio, Rate: i.FalsePositiveRate,
		MemoryBytes: i.MemoryBytes, Pending: i.Pending, Expansion: expansionOf(i.Expansion), Segments: []SegmentReport{},
	}
	if rate := f.MeasuredRate(); !math.IsNaN(rate) {
		r.Measured = &rate
	}
	if log := f.Log(); log != nil {
		r.Log = LogReportOf(log)
	}
	for _, segment := range i.Segments {
		r.Segments = append(r.Segments, SegmentReport(segment))
	}
	if set == nil {
		return r
	}
	r.RedisBytes = &i.RemoteBytes
	for _, p := range set.Info().Parts {
		r.Redis = append(r.Redis, SetReport{p.Key, p.IDs, p.Capacity, p.Bytes, len(p.Shards), p.Whole, p.FillRatio, p.EstimatedFalsePositiveRate})
	}
	p := set.Progress()
	r.Expansion = ExpansionReport{Generation: p.Generation, Running: p.Next != 0, From: p.From, To: p.To, Read: p.Read}
	if p.Next != 0 {
		r.Expansion.Began = &p.Began
	}
	return r
}

// LogReportOf describes a change log.
func LogReportOf(log *changelog.Log) *LogReport {
	s := log.State()
	r := &LogReport{
		Phase: string(s.Phase), Position: s.Position, Tail: s.Tail, Lag: s.Tail - min(s.Tail, s.Position),
		ReadTook: Seconds(s.ReadTook), Members: log.Members(), PendingWrites: s.Pending, Repaired: s.Repaired,
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

// ContainsReport is the answer of a filter about an ID.
type ContainsReport struct {
	Filter string `json:"filter"`
	ID     string `json:"id"`
	Answer string `json:"answer"` // absent, maybe, unknown
	Reason string `json:"reason"` // of unknown, or why requests with this ID are refused
}

// withFilters adds the routes for filters to a handler.
func (s *Server) withFilters(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(r *http.Request, name string) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, answer) })
	}
	handle("GET /filters/{name}", func(_ *http.Request, name string) (any, error) { return s.FilterReport(name), nil })
	handle("GET /filters/{name}/contains", s.serveContains)
	handle("POST /filters/{name}/ids", s.serveAdd)
	handle("POST /filters/{name}/load", s.serveLoad)
	handle("POST /v1/filters/{name}/ids", s.serveAnnounce)
	handle("POST /filters/{name}/expand", s.serveExpand)
	handle("POST /filters/{name}/trust", s.serveTrust)
	handle("POST /filters/{name}/snapshot", s.serveSnapshot)
	mux.Handle("/", next)
	return mux
}

// statusError is an error with the HTTP status of its answer.
type statusError struct {
	error
	status int
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, answer func(*http.Request, string) (any, error)) {
	name := r.PathValue("name")
	var body any
	err := error(statusError{fmt.Errorf("there is no filter %q", name), http.StatusNotFound})
	if _, ok := s.Filters[name]; ok {
		body, err = answer(r, name)
	}
	writeAnswer(w, body, err)
}

// writeAnswer answers with a body, or with an error.
func writeAnswer(w http.ResponseWriter, body any, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = WriteJSON(w, body) // the client may be gone
}

// writeError answers with an error. The status is that of a [statusError], otherwise 500.
func writeError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var with statusError
	if errors.As(err, &with) {
		status = with.status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = WriteJSON(w, ErrorReport{err.Error()}) // the client may be gone
}

func (s *Server) serveContains(r *http.Request, name string) (any, error) {
	id := r.URL.Query().Get("id")
	f := s.Filters[name].Filter()
	report := ContainsReport{Filter: name, ID: id, Answer: f.Query(r.Context(), id).String()}
	check, err := s.check(name)
	switch {
	case err != nil:
		return nil, err
	case check(id) != "":
		report.Reason = "no rule takes such an ID, so a request with it is refused"
	case report.Answer == presence.Unknown.String():
		_, report.Reason = f.State()
	}
	return report, nil
}

// serveExpand expands a filter. The expansion continues after the client has left, and ends with
// the process: another instance can finish it.
func (s *Server) serveExpand(_ *http.Request, name string) (any, error) {
	expanded := make(chan error, 1)
	s.Run(func(ctx context.Context) { expanded <- s.Filters[name].Filter().Expand(ctx) })
	err := <-expanded
	if err != nil {
		if errors.Is(err, filter.ErrNoGrowth) || errors.Is(err, filter.ErrAtMax) {
			err = statusError{err, http.StatusConflict}
		}
		return nil, err
	}
	return s.FilterReport(name), nil
}

// TrustRequest is the body of a request to trust a filter.
type TrustRequest struct {
	Known []string `json:"known"` // IDs of orders that exist
}

func (s *Server) serveTrust(r *http.Request, name string) (any, error) {
	set := s.Filters[name].Set()
	if set == nil {
		return nil, statusError{errors.New("only a filter in Redis is filled by others"), http.StatusConflict}
	}
	var asked TrustRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil && !errors.Is(err, io.EOF) {
		return nil, statusError{fmt.Errorf("reading the known orders: %w", err), http.StatusBadRequest}
	}
	known, err := loader.KnownOrders(r.Context(), s.Config, name)
	if err == nil {
		err = set.Trust(r.Context(), append(known, asked.Known...))
	}
	if err != nil {
		if errors.Is(err, redisset.ErrFilled) || errors.Is(err, redisset.ErrNoneKnown) || errors.Is(err, redisset.ErrLacks) {
			err = statusError{err, http.StatusConflict}
		}
		return nil, err
	}
	s.Logger.Warn("an operator declared the filter in Redis complete", "filter", name,
		runbook.DeclaredWhole.Do("nothing if you know who did"))
	return s.FilterReport(name), nil
}

// Package page is the operator's page of an ordergate: what it does now, in plain words.
//
// Start with [New], and run [Page.Run]. [Page.Handler] serves the page and its events.
package page

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// Options are where the page has its data from. The functions are safe for concurrent use.
type Options struct {
	Version    string
	Config     func() *config.Config // the active one
	Rules      func() map[string]*metrics.RuleCounts
	Filter     func(name string) admin.FilterReport // it counts bits
	Loader     func(filter string) *loader.Loader
	Refusals   *gate.RecentRefusals
	Locks      func() *lockreport.Client                // the caller closes it
	Conditions func(context.Context) []health.Condition // may block for a second
	Logger     *slog.Logger
}

// Page is the page. It is safe for concurrent use.
type Page struct {
	opts   Options
	access access
	ended  chan struct{} // closed by End
	end    sync.Once

	reading sync.Mutex
	read    time.Time // when the conditions were read; guarded by reading
	locks   lockLists

	mu         sync.Mutex
	history    history
	since      map[string]change // by the name of a filter or a condition
	reports    map[string]filterReport
	peers      map[string][]changelog.Peer // by filter
	conditions []health.Condition
	looked     time.Time // when the page was last looked at
	built      time.Time
	fragments  []fragment
	streams    []chan struct{} // of the events, the oldest first
	refusals   []refusalGroup  // that are shown
	explainer  *explain.Prepared
	explained  *config.Config // of explainer
}

// change is when a filter or a condition took its present state.
type change struct {
	state string
	at    time.Time

	before   string // its state before; "": none
	beforeAt time.Time
}

// fragment is a part of the page that changes by itself.
type fragment struct {
	ID      string // also the name of its template
	HTML    template.HTML
	changed time.Time
}

//go:embed files
var files embed.FS

// templates are parsed at their first use: most processes show no page.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(files, "files/*.html"))
})

// fragmentIDs are the parts in the order of the page.
var fragmentIDs = []string{"state", "now", "locks", "filters", "refusals"}

// New returns a page. Its history begins with Run.
func New(o Options) *Page {
	p := &Page{opts: o, ended: make(chan struct{}), since: make(map[string]change), reports: make(map[string]filterReport)}
	p.locks.wake, p.locks.done = make(chan struct{}, 1), make(chan struct{})
	p.access.token = string(o.Config().Listen.Token) // a reload does not change it
	return p
}

const (
	// fresh is how old the data of a page that is looked at may be. All browsers share it.
	fresh = 900 * time.Millisecond
	// conditionsEvery is the interval between two readings of the conditions while the page is looked
	// at; otherwise it is sampleEvery.
	conditionsEvery = 2 * time.Second
	// lookedFor is how long the page counts as looked at after a request.
	lookedFor = 5 * time.Second
)

// Run notes what happens, until ctx ends: counts every 10 s, and since when filters and conditions are
// as they are.
func (p *Page) Run(ctx context.Context) {
	var lists sync.WaitGroup
	defer lists.Wait()
	lists.Go(func() { p.runLists(ctx) })
	p.takeSample(time.Now())
	due := time.Now().Add(sampleEvery)
	for range wait.Every(ctx, time.Second) {
		now := time.Now()
		p.noteFilters(now)
		if !now.Before(due) {
			p.takeSample(now)
			due = now.Add(sampleEvery)
		}
		p.noteConditions(ctx, p.conditionsLast(now))
	}
}

// End ends the streams of events.
func (p *Page) End() { p.end.Do(func() { close(p.ended) }) }

func (p *Page) isLookedAt(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.looked) < lookedFor
}

// conditionsLast returns how long the conditions count: while the page is looked at, and while one has
// a reason, for conditionsEvery.
func (p *Page) conditionsLast(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.looked) < lookedFor || slices.ContainsFunc(p.conditions, func(c health.Condition) bool { return c.Reason != "" || !c.Ready }) {
		return conditionsEvery
	}
	return sampleEvery
}

func (p *Page) takeSample(now time.Time) {
	counts := sample{now, p.opts.Rules()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history.add(counts)
}

func (p *Page) noteFilters(now time.Time) {
	for name := range p.opts.Config().Filters {
		f := p.opts.Loader(name).Filter()
		state, _ := f.State()
		unsure := unsureOf(f, state)
		p.mu.Lock()
		p.note("filter "+name, state, now)
		p.note("unsure "+name, unsure, now)
		p.mu.Unlock()
	}
}

// noteConditions reads the conditions if they are older than a time. It blocks for a second at most.
func (p *Page) noteConditions(ctx context.Context, last time.Duration) {
	p.reading.Lock()
	defer p.reading.Unlock()
	if time.Since(p.read) < last {
		return
	}
	list := p.opts.Conditions(ctx)
	now := time.Now()
	p.read = now
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conditions = list
	for _, c := range list {
		state := "good"
		if c.Reason != "" || !c.Ready {
			state = "bad"
		}
		p.note("condition "+c.Name, state, now)
	}
}

// note records since when something has a state. The caller holds mu.
func (p *Page) note(name, state string, now time.Time) {
	if was := p.since[name]; was.state != state {
		p.since[name] = change{state, now, was.state, was.at}
	}
}

// current returns the parts of the page, built anew if they are too old.
func (p *Page) current() []fragment {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.looked = now
	if now.Sub(p.built) < fresh {
		return p.fragments
	}
	v := p.look(now)
	next := make([]fragment, len(fragmentIDs))
	for i, id := range fragmentIDs {
		next[i] = fragment{ID: id, HTML: p.render(id, v), changed: now}
		if was := slices.IndexFunc(p.fragments, func(f fragment) bool { return f.ID == id && f.HTML == next[i].HTML }); was >= 0 {
			next[i].changed = p.fragments[was].changed
		}
	}
	p.fragments, p.built = next, now
	return next
}

// render executes a template.
func (p *Page) render(name string, data any) template.HTML {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		p.opts.Logger.Error("a part of the page is missing", "part", name, "error", err,
			runbook.Faults.Do("report it as a fault of ordergate, with ordergate bundle"))
		return "This part of the page could not be made: see the log."
	}
	return template.HTML(b.String()) //nolint:gosec // html/template has escaped it
}

// whole is the page as a template has it.
type whole struct {
	Title, Version string
	At             int64 // in ms since 1970: what the browser has
	Parts          map[string]template.HTML
	Live           bool   // the page changes by itself
	Body           string // the name of its template
	Data           any
}

// write answers with a page.
func (p *Page) write(w http.ResponseWriter, status int, page whole) {
	page.Version = p.opts.Version
	body := p.render(page.Body, page)
	text := p.render("page", struct {
		whole
		Content template.HTML
	}{page, body})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client may be gone
}

func (p *Page) serveHome(w http.ResponseWriter, r *http.Request) {
	p.noteConditions(r.Context(), conditionsEvery)
	p.freshLocks(r.Context())
	page := whole{Title: "ordergate", Parts: make(map[string]template.HTML), Live: true, Body: "home", At: time.Now().UnixMilli()}
	for _, f := range p.current() {
		page.Parts[f.ID] = f.HTML
	}
	p.mu.Lock()
	page.Data = p.refusalsOf(p.opts.Config(), true)
	p.mu.Unlock()
	p.write(w, http.StatusOK, page)
}

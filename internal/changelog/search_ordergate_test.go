package changelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/presence"
)

const (
	// longestAway is the time after which a member is expelled.
	longestAway = 40 * time.Second
	// longestCall bounds the duration of a create. After it, an order that a client has abandoned
	// exists, or never will.
	longestCall = 2 * time.Second
	// settling is how long ordergates take to publish what they know after a failover.
	settling = 10 * time.Second
	// fewRemembered is small, so that losses sometimes exceed it.
	fewRemembered = 40
)

// ordergate is one ordergate. Its log, reader and filter are the real ones. This type replaces the
// engine.
type ordergate struct {
	search     *search
	instanceID string
	line       *line
	primary    int // the server that it takes for the primary

	life        int // how often it was started
	log         *Log
	reader      *reader
	filter      *filter.Filter
	table       table
	ids         map[string]bool // in the filter
	known       map[string]bool // created here, or read in the log
	loaded      bool
	acquainted  bool // the log was read once
	waived      bool // an operator confirmed that the sources have the trimmed orders
	reading     bool
	loading     bool
	retrying    bool
	pausedUntil time.Time
	file        *savedFilter
}

func (o *ordergate) busy() bool   { return o.reading || o.loading || o.retrying }
func (o *ordergate) paused() bool { return time.Now().Before(o.pausedUntil) }

func entryAt(m Mark) filter.Entry { return filter.Entry{Log: m.LogID, Number: m.Seq} }

// start begins a new life, from a file or from nothing.
func (o *ordergate) start(fromFile bool) {
	s := o.search
	o.life++
	for _, c := range s.calls {
		// An order created after the end of its ordergate was sent to no client.
		c.sentToClient = c.sentToClient && (c.at != o || c.committed)
	}
	o.ids, o.known = make(map[string]bool), make(map[string]bool)
	o.loaded, o.acquainted, o.waived, o.pausedUntil = false, false, false, time.Time{}
	o.table = table{}
	opts := filter.Options{Exact: true, CommitDelay: longestCall, AppendTimeout: time.Hour}
	opts.Window = func() filter.Window { return o.log.Window() }
	opts.Appender = &appender{o, o.life}
	if s.can.live {
		opts.Live, opts.ClockMargin, opts.Covered = true, s.overlap, o.covered
		opts.CreatedBefore = func(id string) (time.Time, bool) {
			i := slices.IndexFunc(s.calls, func(c *call) bool { return c.id == id })
			if i < 0 {
				return time.Time{}, false
			}
			return s.calls[i].chosen, true
		}
	}
	f, err := filter.New("orders", opts)
	s.must(err)
	o.filter = f
	o.log, err = New(o.line.client, "orders", func(id string) {
		o.add(id)
		o.known[id] = true
	}, o.logOptions())
	s.must(err)
	o.log.recent.limit = s.remembered
	s.scripts(o.log)
	o.reader = &reader{log: o.log, reported: -1}
	o.log.started.Store(true)
	if from := o.file; fromFile && from != nil && from.version == s.version {
		for _, id := range from.ids {
			o.add(id)
		}
		o.loaded, o.table = true, from.table
		o.log.Resume(from.mark)
		s.must(f.Load(context.Background()))
		s.log("%s starts from its file, at %d", o.instanceID, from.mark.Seq)
	} else {
		s.log("%s starts", o.instanceID)
	}
	o.reader.resumeAtMark()
}

func (o *ordergate) logOptions() Options {
	s, f := o.search, o.filter
	opts := Options{Member: o.instanceID, Expel: longestAway, PageSize: 2, PersistGaps: !s.can.live, Window: aWindow}
	opts.OnDoubt = func(d Doubt) {
		s.log("%s: doubt %s since %v: %s; at %d of %s", o.instanceID, d.Kind, d.Since, d.Reason, d.Entry.Seq, d.Entry.LogID)
		cure := filter.ByOperator
		switch d.Kind {
		case Failover, Crash:
			cure = filter.ByWaiting
		case Start:
			cure = filter.ByReload
		}
		doubt := filter.Doubt{Reason: d.Reason, Recovery: cure, Orders: d.Orders, Since: d.Since, Entry: entryAt(d.Entry)}
		switch {
		case d.Kind == Running:
			doubt.Late = max(0, longestCall-d.Age)
		case d.Kind == Failover && !s.can.live:
			doubt.Late = max(0, settling-d.Age)
		}
		f.Doubt(doubt)
	}
	opts.OnCleared = func(upTo Mark, again bool) {
		s.log("%s: cleared up to %d of %s", o.instanceID, upTo.Seq, upTo.LogID)
		f.Confirm(entryAt(upTo), again)
	}
	if s.can.snapshots {
		opts.LoadSnapshot = o.loadSnapshot
	}
	return opts
}

func (o *ordergate) add(id string) {
	o.filter.Add(id)
	o.ids[id] = true
}

// appender implements filter.Appender for one life of an ordergate.
type appender struct {
	*ordergate
	life int
}

var errEnded = errors.New("it has ended")

// publish appends like Log. After it, the ordergate waits for peers.
func (a *appender) publish(ctx context.Context, items ...item) (Mark, error) {
	l := a.log
	if a.life != a.ordergate.life || ctx.Err() != nil {
		return Mark{}, errEnded
	}
	e, err := l.runAppend(ctx, l.append, nil, items)
	return e.mark(), err
}

// Spread implements filter.Appender. Other ordergates continue while it waits.
func (a *appender) Spread(context.Context) error {
	l, s := a.log, a.search
	if s.answersEarly || s.skipsPeers {
		return nil
	}
	return a.wait("spreads", l.WaitForPeers)
}

// wait tries until it succeeds.
func (a *appender) wait(what string, try func(context.Context) error) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for a.life == a.ordergate.life {
		err := try(ended)
		if err == nil || errors.Is(err, errNotMember) {
			return err
		}
		a.search.log("%s %s", a.instanceID, what)
		a.search.pass(pollsEvery)
	}
	return errEnded
}

// Append implements filter.Appender.
func (a *appender) Append(ctx context.Context, ids ...string) error {
	l := a.log
	l.member.track(ids...)
	items, err := l.entries(ids)
	if err == nil {
		_, err = a.publish(ctx, items...)
	}
	if err == nil {
		l.member.ack(ids...)
	}
	return err
}

// Record implements filter.Appender.
func (*appender) Record(context.Context, ...string) error { return errEnded }

// AppendIncomplete implements filter.Appender.
func (a *appender) AppendIncomplete(ctx context.Context, reason string, since time.Time) (filter.Entry, error) {
	return a.doubt(ctx, Doubt{Kind: Lost, Reason: reason, Orders: true, Since: since})
}

// AppendAbandoned implements filter.Appender.
func (a *appender) AppendAbandoned(ctx context.Context, reason string, since time.Time) (filter.Entry, error) {
	return a.doubt(ctx, Doubt{Kind: Running, Reason: reason, Orders: true, Since: since})
}

// doubt appends a doubt like Log.
func (a *appender) doubt(ctx context.Context, d Doubt) (filter.Entry, error) {
	l := a.log
	covered := l.member.trackDoubt(d.text())
	text := d
	if d.Kind == Running {
		text.Reason = strconv.FormatInt(l.member.serverTime(), 10) + " " + d.Reason
	}
	at, err := a.publish(ctx, item{"doubt", text.text()})
	if err != nil {
		return filter.Entry{}, err
	}
	l.member.ackDoubt(d.text(), covered, d.Since.IsZero())
	return entryAt(at), nil
}

// Withdraw implements filter.Appender.
func (a *appender) Withdraw(context.Context) error {
	l, s := a.log, a.search
	if s.answersEarly {
		return nil
	}
	return a.wait("withdraws", l.Withdraw)
}

// read reads the log to its tail, and looks up all orders if the log is complete then.
func (o *ordergate) read() error {
	if o.reading || o.paused() {
		return errors.New("it does not read now")
	}
	o.reading = true
	o.search.depth++
	defer func() { o.reading = false; o.search.depth-- }()
	err := o.reader.readToTail(context.Background())
	o.search.log("%s has read to %d: %v", o.instanceID, o.reader.last.seq, err)
	if err == nil || errors.Is(err, ErrAway) {
		o.acquainted = true
	}
	o.search.lookup()
	return err
}

// lookup looks up all orders in every ordergate.
func (s *search) lookup() {
	for _, o := range s.ordergates {
		if o.loaded && !o.paused() {
			o.lookup()
		}
	}
}

// lookup looks up all orders that clients have received.
func (o *ordergate) lookup() {
	s := o.search
	for _, c := range s.calls {
		if !c.committed || !c.sentToClient {
			continue
		}
		if o.filter.MayContain(c.id) == presence.Absent && (s.can.live || s.known(c)) {
			s.found = fmt.Sprintf("%s is absent at %s, and was created by %s", c.id, o.instanceID, c.by)
			s.log("%s", s.found)
		}
	}
	// An order that does not exist shows whether the ordergate can answer Absent.
	if s.lookups++; o.filter.MayContain("999999999") == presence.Absent {
		s.refused++
	}
}

// load reads the sources for the first time.
func (o *ordergate) load() {
	if !o.loaded && o.acquainted {
		o.readSources()
	}
}

func (o *ordergate) readSources() {
	if o.busy() || o.paused() {
		return
	}
	o.loading = true
	defer func() { o.loading = false }()
	s := o.search
	var err error
	switch {
	case s.can.live && !o.loaded:
		err = o.filter.Load(context.Background(), o)
	case s.can.live:
		err = o.filter.CatchUp(context.Background(), func(_ context.Context, add func(string) error) error {
			return s.readTable(&o.table, func(id string) error { o.ids[id] = true; return add(id) })
		})
	default:
		for _, id := range s.source {
			o.ids[id] = true
		}
		err = o.filter.Load(context.Background(), idList(slices.Clone(s.source)))
	}
	o.loaded = o.loaded || err == nil
	s.log("%s has read its sources, the mark is %d: %v", o.instanceID, o.table.mark, err)
}

// IDs implements filter.Source: the table.
func (o *ordergate) IDs(_ context.Context, yield func(id string) error) error {
	return o.search.readTable(&o.table, func(id string) error { o.ids[id] = true; return yield(id) })
}

// covered is the engine's.
func (o *ordergate) covered() filter.Scope {
	if o.table.ended.IsZero() || time.Since(o.table.ended) > 10*time.Second {
		return filter.Scope{}
	}
	return filter.Scope{Above: uint64(o.table.upTo), Since: o.table.began.Add(-o.search.overlap)}
}

// recover clears doubts.
func (o *ordergate) recover() {
	cure, ok := o.filter.Recoverable()
	if !ok || !o.loaded || o.busy() || o.paused() {
		return
	}
	if o.search.can.live || cure != filter.ByWaiting {
		o.readSources()
		return
	}
	o.loading = true
	defer func() { o.loading = false }()
	_ = o.filter.WaitForPeers(context.Background(), func(context.Context) error { o.search.pass(settling); return nil })
}

// retry appends pending writes.
func (o *ordergate) retry() {
	if o.filter.Pending() == 0 || o.paused() || o.retrying {
		return
	}
	o.retrying = true
	defer func() { o.retrying = false }()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = o.filter.Run(ended) // which tries once more
}

// leave deregisters, and starts anew. A reader of a demoted primary would not wait for this member
// at the new primary.
func (o *ordergate) leave() {
	if o.busy() || slices.ContainsFunc(o.search.ordergates, func(o *ordergate) bool { return o.primary != o.search.current }) {
		return
	}
	o.retry()
	if o.log.member.isJoined() {
		err := o.log.member.Leave(context.Background())
		o.search.log("%s leaves: %v", o.instanceID, err)
	}
	if o.busy() {
		return // it is already within its last commands
	}
	o.start(o.search.random.IntN(2) == 0)
}

// learn is an operator's confirmation that the sources have every order.
func (o *ordergate) learn() {
	s := o.search
	if o.busy() || !o.loaded || o.paused() {
		return
	}
	life := o.life
	o.waived = o.waived || o.log.State().LastRead.IsZero()
	_ = o.read()
	upTo := o.log.Mark()
	s.version++
	s.source = nil
	for _, c := range s.calls {
		s.source = append(s.source, c.id)
	}
	source := slices.Clone(s.source)
	o.loading = true
	err := o.filter.Reload(context.Background(), func(ctx context.Context, add func(string) error) error {
		if s.depth < deepest && s.strikes(4) {
			s.act()
		}
		return idList(source).IDs(ctx, add)
	})
	o.loading = false
	if err != nil || upTo.LogID == "" || o.life != life {
		return
	}
	for _, id := range source {
		o.ids[id] = true
	}
	err = o.log.ClearDoubts(context.Background(), upTo)
	s.log("%s: an operator clears up to %d: %v", o.instanceID, upTo.Seq, err)
}

// save writes the file.
func (o *ordergate) save() {
	if o.busy() || !o.loaded {
		return
	}
	if mark := o.log.Mark(); o.filter.Loaded() {
		o.file = &savedFilter{mark: mark, table: o.table, version: o.search.version, ids: o.allIDs()}
		o.search.log("%s saves its filter at %d", o.instanceID, mark.Seq)
	}
}

func (o *ordergate) allIDs() (ids []string) {
	for id := range o.ids {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// snapshot writes a snapshot to Redis, and trims the log.
func (o *ordergate) snapshot() {
	s, ctx, life := o.search, context.Background(), o.life
	if !s.can.snapshots || !o.loaded || o.paused() {
		return
	}
	before, err := o.log.Snapshot(ctx)
	if err != nil || o.life != life {
		return
	}
	s.next++
	next := Snapshot{Mark: o.log.Mark(), Token: fmt.Sprint("t", s.next), Chunks: 1, Bytes: 1}
	if next.Seq == 0 || !o.filter.Loaded() {
		return
	}
	text, err := json.Marshal(o.allIDs())
	s.must(err)
	if o.log.PutChunk(ctx, next.Token, 0, text) != nil || o.life != life {
		return
	}
	err = o.log.Adopt(ctx, next, before)
	s.log("%s: a snapshot up to %d: %v", o.instanceID, next.Seq, err)
	if err != nil || o.life != life {
		return
	}
	if now, err := o.log.Snapshot(ctx); err == nil && now.Token != "" && o.life == life {
		removed, err := o.log.Trim(ctx, now, 3)
		s.log("%s: trimmed %d: %v", o.instanceID, removed, err)
	}
}

// loadSnapshot is the engine's.
func (o *ordergate) loadSnapshot(ctx context.Context) (Mark, error) {
	ids, at, err := o.snapshotIDs(ctx)
	for _, id := range ids {
		o.add(id)
	}
	if err != nil && strings.HasPrefix(err.Error(), "useless") && o.waived {
		return Mark{}, nil
	}
	return at, err
}

func (o *ordergate) snapshotIDs(ctx context.Context) (ids []string, at Mark, err error) {
	current, err := o.log.Snapshot(ctx)
	if err != nil {
		return nil, Mark{}, err
	}
	if current.Token == "" {
		if trimmed, err := o.log.WasTrimmed(ctx); err != nil || trimmed {
			return nil, Mark{}, errors.Join(errors.New("useless: it is gone"), err)
		}
		return nil, Mark{}, nil
	}
	text, err := o.log.Chunk(ctx, current.Token, 0)
	if err != nil {
		return nil, Mark{}, fmt.Errorf("useless: %w", err)
	}
	return ids, current.Mark, json.Unmarshal(text, &ids)
}

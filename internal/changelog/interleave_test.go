package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// The tests in this file run every interleaving of a few steps of three ordergates: two create
// orders, and one is asked for them. They use the real scripts on a real server, and look for an
// order that is Absent although its client has received it. docs/freshness.pml does the same with a
// model, which is small enough for all faults.

// site is one ordergate whose reads and appends run step by step.
type site struct {
	log    *Log
	reader *reader
	order  string

	appending chan error    // the result of the append under way
	goOn      chan fate     // the fate of the command
	reached   chan struct{} // the command is before the server, then behind it
	sent      redis.Cmder
	giveUp    func() // cancels the append's context
	done      bool   // the append has ended
	failed    bool   // the append has failed
}

// play is one run of a schedule, on its own keys.
type play struct {
	t            *testing.T
	bed          *stage
	filter       string
	a1, a2       *site
	b            *site
	frozen       map[string]string // the keys of the replica
	created      []string          // committed in the source
	sentToClient []string          // sent to their clients

	has            map[string]bool // applied by B
	doubted        bool
	reading, stale bool // of the source
	found          []string
	cut            bool     // A1 cannot read
	absent         []string // sent to clients, and answered Absent
}

// stage is shared by all plays.
type stage struct {
	clients      map[string]*redis.Client // by instance ID
	plain        *redis.Client
	mutate       func(*Log) // changes the scripts; nil: no change
	lookupFirst  bool       // the lookup comes before the read of the state
	oldReads     bool       // a read that began earlier clears a doubt, too
	answersEarly bool       // a reply does not wait for the end of the lease
	plays        int
	sure         int // lookups for which the log allowed Absent
}

func newStage(t *testing.T) *stage {
	s := startRealServer(t)
	st := &stage{clients: make(map[string]*redis.Client), plain: connect(t, s)}
	for _, instanceID := range []string{"a1", "a2", "b"} {
		st.clients[instanceID] = connect(t, s)
		st.clients[instanceID].AddHook(stops{})
	}
	return st
}

// stops blocks the appends that a site began by send.
type stops struct{}

type (
	siteKey struct{} // context key: the *site of the append
	readKey struct{} // context key: the read
	reading struct {
		append  *redis.Script
		replied func() // called after it has run
	}
)

func (stops) DialHook(next redis.DialHook) redis.DialHook { return next }
func (stops) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (stops) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s, ok := ctx.Value(siteKey{}).(*site)
		if !ok {
			err := next(ctx, cmd)
			if r, ok := ctx.Value(readKey{}).(reading); ok && runs(cmd, r.append) {
				r.replied()
			}
			return err
		}
		s.sent = cmd
		s.reached <- struct{}{}
		return (<-s.goOn)(ctx, cmd, next)
	}
}

// longLease outlasts every play: only pass ends it.
const longLease = time.Hour

func (p *play) newSite(instanceID string) *site {
	s := &site{order: "order-" + instanceID, appending: make(chan error, 1), goOn: make(chan fate), reached: make(chan struct{})}
	opts := Options{Member: instanceID, Lease: longLease, Expel: 100 * longLease, Timeout: 20 * time.Second}
	apply := func(string) {}
	if instanceID == "b" {
		apply = func(id string) { p.has[id] = true }
		opts.OnDoubt = func(Doubt) { p.doubted, p.stale = true, true }
	}
	log, err := New(p.bed.clients[instanceID], p.filter, apply, opts)
	p.must(err)
	if p.bed.mutate != nil {
		p.bed.mutate(log)
	}
	s.log = log
	s.reader = &reader{log: log}
	s.reader.resumeAtMark()
	return s
}

// newPlay prepares a play: all are members with a lease, and B has read the source.
func newPlay(t *testing.T, bed *stage) *play {
	bed.plays++
	p := &play{t: t, bed: bed, filter: fmt.Sprintf("%s-%d", strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), bed.plays), has: make(map[string]bool)}
	p.b = p.newSite("b")
	p.a1 = p.newSite("a1")
	p.a2 = p.newSite("a2")
	for range 2 {
		for _, s := range []*site{p.b, p.a1, p.a2} {
			p.must(unsure(s.read(p)))
		}
	}
	p.must(p.a1.log.Append(t.Context(), "first")) // this loads the scripts
	p.must(p.a2.log.Append(t.Context(), "second"))
	p.beginReading()
	p.endReading()
	p.must(p.b.read(p))
	if p.doubted || !p.has["first"] {
		t.Fatalf("B is not ready: doubted %v, has %v", p.doubted, p.has)
	}
	return p
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// cleanup ends what hangs, and deletes the keys.
func (p *play) cleanup() {
	for _, s := range []*site{p.a1, p.a2} {
		s.stop()
	}
	p.must(p.bed.plain.Del(context.Background(), p.a1.log.keys...).Err())
}

// read takes the reader to the tail. It fails instead of waiting for the end of a lease, which is
// an hour away.
func (s *site) read(p *play) error {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	if s == p.b { // it creates nothing, so no instance waits for the end of its lease
		m := s.log.member
		m.mu.Lock()
		m.renewedFrom.received = m.renewedFrom.received.Add(-2 * longLease)
		m.mu.Unlock()
	}
	return s.reader.readToTail(context.WithValue(ctx, readKey{}, reading{s.log.append, cancel}))
}

func (p *play) beginReading() {
	p.reading, p.stale = true, false
	p.found = slices.Clone(p.created)
}

func (p *play) endReading() {
	for _, id := range p.found {
		p.has[id] = true
	}
	if !p.stale || p.bed.oldReads {
		p.doubted = false
	}
	p.reading = false
}

// lookup asks B for every order that a client has received.
func (p *play) lookup() {
	sent := slices.Clone(p.sentToClient)
	if p.b.read(p) != nil {
		return // Unknown
	}
	p.bed.sure++
	missing := func(id string) bool { return !p.has[id] }
	if p.bed.lookupFirst {
		lacks := slices.ContainsFunc(sent, missing)
		if p.doubted { // the source is read between the two steps
			p.beginReading()
			p.endReading()
		}
		if lacks && !p.doubted {
			p.absent = sent
		}
		return
	}
	if !p.doubted && slices.ContainsFunc(sent, missing) {
		p.absent = sent
	}
}

// send makes a site create its order and begin the append, which stops before the server.
func (s *site) send(p *play) {
	p.created = append(p.created, s.order)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), siteKey{}, s))
	s.giveUp, s.done = cancel, false
	go func() {
		err := s.log.Append(ctx, s.order)
		if err == nil {
			err = s.log.WaitForPeers(ctx)
		}
		s.appending <- err
	}()
	<-s.reached
}

// stop ends an append that has begun.
func (s *site) stop() {
	if s.giveUp == nil {
		return
	}
	if !s.done {
		s.done = true
		s.goOn <- cut
		s.failed = <-s.appending != nil
	}
	s.giveUp()
}

// serve lets the server run the command, and stops before the reply arrives.
func (s *site) serve() {
	s.goOn <- func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		s.reached <- struct{}{}
		return (<-s.goOn)(ctx, cmd, func(context.Context, redis.Cmder) error { return err })
	}
	<-s.reached
}

// end delivers the reply, or loses it. Nothing waits after that: the end of a lease is an hour
// away.
func (s *site) end(p *play, f fate) {
	s.goOn <- func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		defer s.giveUp()
		return f(ctx, cmd, next)
	}
	s.done = true
	if err := <-s.appending; err != nil {
		s.failed = true
		return
	}
	p.sentToClient = append(p.sentToClient, s.order)
}

func arrive(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	return next(ctx, cmd)
}

// late lets the server run a command whose sender has given up.
func (s *site) late(p *play) { p.must(p.bed.plain.Do(p.t.Context(), s.sent.Args()...).Err()) }

// withdraw sends the reply to the client if the lease is certainly over.
func (s *site) withdraw(p *play) {
	ctx, cancel := context.WithCancel(p.t.Context())
	cancel()
	if s.log.Withdraw(ctx) == nil || p.bed.answersEarly {
		p.sentToClient = append(p.sentToClient, s.order)
	}
}

// pass lets the time of a lease pass, for Redis and for all instances.
func (p *play) pass() {
	const step = longLease + 2*(longLease/10+leastMargin)
	ctx, keys := p.t.Context(), p.a1.log.keys
	names, err := p.bed.plain.ZRange(ctx, keys[keyMembers], 0, -1).Result()
	p.must(err)
	for _, name := range names {
		p.must(p.bed.plain.ZIncrBy(ctx, keys[keyMembers], -float64(step.Milliseconds()), name).Err())
	}
	if p.bed.plain.HExists(ctx, keys[keyMeta], "now").Val() {
		p.must(p.bed.plain.HIncrBy(ctx, keys[keyMeta], "now", -step.Milliseconds()).Err())
	}
	for _, s := range []*site{p.a1, p.a2, p.b} {
		m := s.log.member
		m.mu.Lock()
		for _, at := range []*serverTime{&m.lastReply, &m.confirmed, &m.renewedFrom} {
			if !at.received.IsZero() {
				at.received, at.ms = at.received.Add(-step), at.ms-step.Milliseconds()
			}
		}
		m.mu.Unlock()
	}
	for range 2 { // A2 runs all the time
		p.must(unsure(p.a2.read(p)))
	}
}

// freeze is the last state that the replica receives.
func (p *play) freeze() {
	p.frozen = make(map[string]string)
	for _, key := range p.a1.log.keys {
		dump, err := p.bed.plain.Dump(p.t.Context(), key).Result()
		if err == nil {
			p.frozen[key] = dump
		} else if !errors.Is(err, redis.Nil) {
			p.must(err)
		}
	}
}

// failover promotes the replica: writes after freeze are lost.
func (p *play) failover() {
	ctx := p.t.Context()
	p.must(p.bed.plain.Del(ctx, p.a1.log.keys...).Err())
	for key, dump := range p.frozen {
		p.must(p.bed.plain.Restore(ctx, key, 0, dump).Err())
	}
	p.must(p.bed.plain.HSet(ctx, p.a1.log.keys[keyMeta], "term", strings.Repeat("0", 40)).Err())
}

// finish completes everything that can, and asks B for all orders.
func (p *play) finish() {
	p.pass()
	for range 3 {
		p.must(unsure(p.a2.read(p)))
		if !p.cut {
			p.must(unsure(p.a1.read(p)))
		}
	}
	for range 2 {
		if p.lookup(); p.doubted {
			p.beginReading()
			p.endReading()
		}
	}
}

// unsure ignores the errors of a reader that opens no window.
func unsure(err error) error {
	if errors.Is(err, ErrAway) || errors.Is(err, ErrUnavailable) || errors.Is(err, errStopped) {
		return nil
	}
	return err
}

func TestInterleavings(t *testing.T) {
	bedtest.WithoutRace(t)
	t.Parallel()
	total := make(chan int, len(scenarios()))
	t.Run("scenario", func(t *testing.T) {
		for _, sc := range scenarios() {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				st := newStage(t)
				plays, absent := st.search(t, sc)
				if absent != "" {
					t.Errorf("Absent after %s", absent)
				}
				if st.sure == 0 {
					t.Error("nothing could be Absent")
				}
				t.Logf("%d schedules, %d lookups that could be answered", plays, st.sure)
				total <- plays
			})
		}
	})
	ran, all := len(total), 0 // -run may have selected some
	close(total)
	for plays := range total {
		all += plays
	}
	if ran == cap(total) && all < 1000 {
		t.Errorf("%d schedules in all: do the steps still happen?", all)
	}
}

// TestInterleavingsFindMutations removes one rule at a time.
func TestInterleavingsFindMutations(t *testing.T) {
	bedtest.WithoutRace(t)
	t.Parallel()
	all := make(map[string]scenario)
	for _, sc := range scenarios() {
		all[sc.name] = sc
	}
	// script changes the scripts: pairs of texts and replacements.
	script := func(pairs ...string) func(*stage) {
		return func(st *stage) {
			for i := 0; i < len(pairs); i += 2 {
				if !strings.Contains(enterSource+joinSource+leaveSource+recallSource+pageSource, pairs[i]) {
					t.Fatalf("no script has %q", pairs[i])
				}
			}
			source := func(name string) *redis.Script {
				return redis.NewScript(withoutComments(strings.NewReplacer(pairs...).Replace(enterSource + name)))
			}
			st.mutate = func(l *Log) {
				l.append, l.join, l.leave = source(appendSource), source(joinSource), source(leaveSource)
				l.recall, l.page = source(recallSource), source(pageSource)
			}
		}
	}
	for _, m := range []struct {
		without, in string
		mutate      func(*stage)
	}{
		{"an answer waits for the end of the lease", "cut off", func(st *stage) { st.answersEarly = true }},
		{"nobody is sure while a member is away", "cut off", script("away = over[i]", "away = ''")},
		{"a member that vanished is a doubt", "cut off, crash", script("put('doubt', 'crash: ", "string.len('")},
		{"a failover is a doubt, of who leaves after it too", "failover, leave",
			script("put('doubt', 'term: ", "string.len('", "put('doubt', 'crash: ' .. ARGV[3] .. ' took", "string.len('' .. ARGV[3] .. ' took")},
		{"a log that lost its members is another one", "cut off, members lost", script("local gone = ", "local gone = false and ")},
		{"members that were lost are called back", "cut off, all lost", script("redis.call('ZADD', members, 'NX', decimal(now - 1), ARGV[i])", "")},
		{"the state is read before the second look", "cut off, crash", func(st *stage) { st.lookupFirst = true }},
		{"a doubt is cleared by what was read since", "crash while the source is read", func(st *stage) { st.oldReads = true }},
	} {
		t.Run(m.without, func(t *testing.T) {
			st := newStage(t)
			m.mutate(st)
			plays, absent := st.search(t, all[m.in])
			if absent == "" {
				t.Fatalf("nothing goes wrong in %d schedules", plays)
			}
			t.Logf("after %d schedules: %s", plays, absent)
		})
	}
}

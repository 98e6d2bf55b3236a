package changelog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// The tests in this file search at random for an order that is Absent although a client has
// received it. Three ordergates with the real log, scripts and filter share a real Redis. Faults
// strike before, instead of and after each command. Time is simulated. At the end there are no
// faults for a while, and a new ordergate is asked, too.
//
// Orders that the sources lack can be lost with all ordergates that know them. So without a live
// source, an order counts while a running ordergate knows it.

// abilities are the events that can happen in a run.
type abilities struct {
	live      bool // there is a live source
	lostIDs   bool // orders with an unknown ID
	clear     bool // an operator confirms that the sources have every order
	inbox     bool
	snapshots bool // in Redis, with trimming
	damage    bool // of the keys
	clocks    bool // of servers are set back
	full      bool // memory
}

// searched is one kind of run, with its number of steps.
type searched struct {
	name  string
	can   abilities
	steps int
}

var searches = []searched{
	{"no sources", abilities{inbox: true, clocks: true, full: true}, 25},
	{"lost IDs", abilities{lostIDs: true, clear: true}, 20},
	{"snapshots", abilities{clear: true, snapshots: true, full: true}, 40},
	{"damage", abilities{lostIDs: true, clear: true, inbox: true, snapshots: true, damage: true}, 30},
	{"live", abilities{live: true, clocks: true, full: true}, 30},
	{"live, lost IDs", abilities{live: true, lostIDs: true, inbox: true, full: true}, 30},
	{"live, damage", abilities{live: true, lostIDs: true, damage: true}, 30},
}

// searchBed is shared by all runs.
type searchBed struct {
	primaries []*primary
	lines     []*line
	change    func(*search) // the change of a mutation; nil: no change
	scripts   func(*Log)
}

// search is one run.
type search struct {
	t         *testing.T
	random    *rand.Rand
	can       abilities
	primaries []*primary
	scripts   func(*Log)
	saysMuch  bool

	ordergates []*ordergate
	current    int // the primary
	replica    int
	failedOver time.Time
	calls      []*call
	next       int      // number of the next order, token or failover
	source     []string // orders of a source that is not live
	version    int      // of the source
	noFaults   bool     // no faults happen
	depth      int      // of nested actions
	trace      []string
	found      string // an order that is wrongly Absent
	lookups    int    // number of lookups of all orders
	refused    int    // how often an order that does not exist was Absent
	certain    int    // ordergates without doubt in the end

	overlap      time.Duration
	remembered   int
	answersEarly bool // clients receive an order before the lease is over
	skipsPeers   bool // clients receive an order before all readers have it
}

// call is a call that creates an order, or may create it.
type call struct {
	id           string
	by           string // the ordergate
	at           *ordergate
	life         int // of the ordergate
	began        time.Time
	chosen       time.Time // when the ID was chosen
	committed    bool
	unanswered   bool // there is an answer that the ordergate has not read
	unknown      bool // the ID is unknown
	sentToClient bool // the client may have received the order
}

// savedFilter is a file that an ordergate can start from.
type savedFilter struct {
	ids     []string
	mark    Mark
	table   table
	version int // of the sources
}

// idList is a source.
type idList []string

// IDs implements filter.Source.
func (l idList) IDs(_ context.Context, yield func(id string) error) error {
	for _, id := range l {
		if err := yield(id); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) log(format string, args ...any) {
	s.trace = append(s.trace, strings.Repeat("  ", s.depth)+fmt.Sprintf(format, args...))
}

func (s *search) key(name string) string { return "ordergate:{orders}:" + name }

func (s *search) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// newOrder begins a call. Its number is greater than all before.
func (s *search) newOrder() *call {
	s.next++
	c := &call{id: strconv.Itoa(s.next), by: "somebody", began: time.Now(), chosen: time.Now()}
	s.calls = append(s.calls, c)
	return c
}

// create lets a client create an order.
func (o *ordergate) create() {
	s := o.search
	if o.paused() {
		return
	}
	c := s.newOrder()
	c.by, c.at, c.life = o.instanceID, o, o.life
	if s.can.live && s.random.IntN(3) == 0 {
		s.log("%s: a call begins that creates %s", o.instanceID, c.id)
		if s.can.lostIDs && s.random.IntN(4) == 0 {
			o.abandon(c)
		}
		return
	}
	c.committed = true
	o.answer(c)
}

// createWithoutID lets a client create an order with an unreadable ID, or disconnect.
func (o *ordergate) createWithoutID() {
	if o.paused() {
		return
	}
	c := o.search.newOrder()
	c.by, c.at, c.life, c.unknown, c.committed = o.instanceID, o, o.life, true, true
	if o.search.random.IntN(3) == 0 {
		c.committed = !o.search.can.live
		o.abandon(c)
		return
	}
	o.answer(c)
}

// abandon lets the client of a call disconnect.
func (o *ordergate) abandon(c *call) {
	c.unknown = true
	o.search.log("%s: the client of %s has left", o.instanceID, c.id)
	o.sendToClient(c, func(ctx context.Context) error { return o.filter.Abandoned(ctx, "the client left", c.began) })
}

// answer is the backend's answer that an order was created.
func (o *ordergate) answer(c *call) {
	o.search.log("%s: %s is created", o.instanceID, c.id)
	if c.unknown {
		o.sendToClient(c, func(ctx context.Context) error { return o.filter.MarkIncomplete(ctx, "no ID", c.began) })
		return
	}
	o.ids[c.id], o.known[c.id] = true, true
	o.sendToClient(c, func(ctx context.Context) error { return o.filter.Learn(ctx, c.id) })
}

// sendToClient sends the order to its client once learn has returned.
func (o *ordergate) sendToClient(c *call, learn func(ctx context.Context) error) {
	o.search.depth++
	err := learn(context.Background())
	o.search.depth--
	if o.life == c.life && !errors.Is(err, filter.ErrExposed) {
		c.sentToClient = true
	}
	o.search.log("%s: the client of %s is told %v: %v", o.instanceID, c.id, c.sentToClient, err)
}

// endCalls ends calls of at least this age; 0: one of all calls.
func (s *search) endCalls(age time.Duration) {
	s.dropLate()
	for _, c := range slices.Clone(s.calls) {
		if c.at == nil || c.committed && !c.unanswered || time.Since(c.chosen) < age || age == 0 && s.random.IntN(2) == 0 {
			continue
		}
		if !c.committed {
			s.log("%s is committed", c.id)
			c.committed, c.unanswered = true, !c.unknown
		}
		if c.unanswered && !c.at.paused() && c.at.life == c.life {
			c.unanswered = false
			c.at.answer(c)
		}
		if age == 0 {
			return
		}
	}
}

// dropLate rolls back the calls that were not committed in time.
func (s *search) dropLate() {
	s.calls = slices.DeleteFunc(s.calls, func(c *call) bool { return !c.committed && time.Since(c.chosen) >= overlap })
}

// known reports whether a running ordergate knows an order.
func (s *search) known(c *call) bool {
	if c.unknown {
		return c.at.life == c.life
	}
	return slices.ContainsFunc(s.ordergates, func(o *ordergate) bool { return o.known[c.id] })
}

func newSearchBed(t *testing.T) *searchBed {
	r := startRealServer(t)
	bed := &searchBed{}
	for i := range 8 {
		o := r.options()
		o.DB, o.ConnMaxIdleTime, o.MaxRetries = i, -1, -1
		bed.primaries = append(bed.primaries, &primary{number: i, client: newClient(t, o)})
	}
	first := bed.primaries[0].client
	for name, value := range map[string]string{"stream-node-max-entries": "2", "appendonly": "no"} {
		if err := first.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		l := &line{}
		l.client = newClient(t, &redis.Options{Addr: "nowhere", MaxRetries: -1})
		l.client.AddHook(l)
		bed.lines = append(bed.lines, l)
	}
	bed.useScripts(t)
	return bed
}

// useScripts installs scripts that take the time from the test. Pairs are texts and their
// replacements.
func (bed *searchBed) useScripts(t *testing.T, pairs ...string) {
	t.Helper()
	all := enterSource + appendSource + followSource + clearSource + joinSource + leaveSource + recallSource + pageSource + adoptSource + trimSource
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(all, pairs[i]) {
			t.Fatalf("no script has %q", pairs[i])
		}
	}
	script := func(source string) *redis.Script {
		made := redis.NewScript(withoutComments(reportToTest(strings.NewReplacer(pairs...).Replace(enterSource+source), clockOfRun)))
		if err := made.Load(t.Context(), bed.primaries[0].client).Err(); err != nil {
			t.Fatal(err)
		}
		return made
	}
	made := Log{
		append: script(appendSource), follow: script(followSource), clear: script(clearSource), join: script(joinSource), leave: script(leaveSource),
		recall: script(recallSource), page: script(pageSource), adopt: script(adoptSource), trim: script(trimSource), forget: script(forgetSource),
	}
	bed.scripts = func(l *Log) {
		l.append, l.follow, l.clear, l.join, l.leave = made.append, made.follow, made.clear, made.join, made.leave
		l.recall, l.page, l.adopt, l.trim, l.forget = made.recall, made.page, made.adopt, made.trim, made.forget
	}
}

// run runs one search. The seed determines all that happens.
func (bed *searchBed) run(t *testing.T, can abilities, steps, seed int, saysMuch bool) (s *search) {
	t.Helper()
	for _, m := range bed.primaries {
		if err := m.client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		m.clock, m.info = 0, ""
	}
	bed.primaries[0].promote(0)
	cryptotest.SetGlobalRandom(t, uint64(seed))
	synctest.Test(t, func(t *testing.T) {
		s = &search{
			t: t, random: rand.New(rand.NewPCG(uint64(seed), 7)), can: can, primaries: bed.primaries, scripts: bed.scripts,
			saysMuch: saysMuch, replica: 1, noFaults: true, overlap: overlap, remembered: fewRemembered,
		}
		if bed.change != nil {
			bed.change(s)
		}
		for i, instanceID := range []string{"a", "b", "c"} {
			s.newOrdergate(instanceID, bed.lines[i])
		}
		s.flush()
		s.copyTo(0, 1)
		s.noFaults = false
		for range steps {
			if s.found == "" {
				s.act()
				s.lookup()
			}
		}
		if s.found != "" {
			return
		}
		s.flush()
		s.flush()
		s.noFaults = true
		s.newOrdergate("d", bed.lines[3])
		for n := range 4 {
			for _, o := range s.ordergates {
				if s.found != "" {
					return
				}
				o.load()
				o.recover()
				_ = o.read()
				if n == 3 && o.log.Err() == nil && o.loaded && o.filter.Loaded() {
					s.certain++
				}
			}
		}
	})
	return s
}

func (s *search) newOrdergate(instanceID string, l *line) {
	o := &ordergate{search: s, instanceID: instanceID, line: l, primary: s.current}
	l.of = o
	s.ordergates = append(s.ordergates, o)
	o.start(false)
}

// seeds returns the first seed and the number of seeds: few; with SOAK=N, N times 2,000 from a
// varying one; or SEED alone.
func seeds(t *testing.T, few int) (first, n int) {
	t.Helper()
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("SEED: %v", err)
		}
		return seed, 1
	}
	if soak := os.Getenv("SOAK"); soak != "" {
		times, _ := strconv.Atoi(soak)
		return rand.IntN(1 << 40), 2000 * max(times, 1)
	}
	return 1, few
}

func TestSearch(t *testing.T) {
	bedtest.WithoutRace(t)
	for _, sc := range searches {
		t.Run(sc.name, func(t *testing.T) {
			bed := newSearchBed(t)
			first, n := seeds(t, 12)
			began, lookups, refused, sure := time.Now(), 0, 0, 0
			for seed := first; seed < first+n; seed++ {
				s := bed.run(t, sc.can, sc.steps, seed, n == 1)
				lookups, refused, sure = lookups+s.lookups, refused+s.refused, sure+s.certain
				if n == 1 {
					t.Log(strings.Join(s.trace, "\n"))
				}
				if s.found != "" {
					t.Fatalf("%s: to see how, SEED=%d go test -v -run '%s$' ./internal/changelog", s.found, seed, t.Name())
				}
			}
			t.Logf("%d runs from seed %d in %v: all was asked for %d times, %d times without doubt; in the end %d ordergates of %d have none",
				n, first, time.Since(began).Round(time.Millisecond), lookups, refused, sure, 4*n)
			if n > 1 && refused == 0 {
				t.Error("nothing was ever Absent")
			}
		})
	}
}

// TestSearchFindsMutations removes one rule at a time.
func TestSearchFindsMutations(t *testing.T) {
	bedtest.WithoutRace(t)
	hasty := func(s *search) { s.answersEarly = true }
	for _, m := range []struct {
		without, in string
		from        int // the seed that found it
		change      func(*search)
		scripts     []string // pairs of texts and replacements
	}{
		{"an answer waits for the end of the lease", "live", 55, hasty, nil},
		{"nobody is sure while a member is away", "live", 32, nil, []string{"away = over[i]", "away = ''"}},
		{"a failover ends all leases", "live", 210, nil, []string{"if known[3] then\n      lapse()", "if known[3] then"}},
		{"a member that ended is a doubt", "live", 80, nil, []string{"put('doubt', 'crash: ", "string.len('"}},
		{"a table is read once more behind its mark", "live, lost IDs", 2175, func(s *search) { s.overlap = 0 }, nil},
		{"an answer waits until all have the order", "live", 1, func(s *search) { s.skipsPeers = true }, nil},
		{"an order without an ID is a doubt", "live, lost IDs", 5, nil, []string{"put(ARGV[i], ARGV[i + 1])", "if ARGV[i] == 'id' then put(ARGV[i], ARGV[i + 1]) end"}},
	} {
		t.Run(m.without, func(t *testing.T) {
			bed := newSearchBed(t)
			bed.useScripts(t, m.scripts...)
			bed.change = m.change
			i := slices.IndexFunc(searches, func(s searched) bool { return s.name == m.in })
			const most = 200
			for seed := m.from; seed < m.from+most; seed++ {
				if s := bed.run(t, searches[i].can, searches[i].steps, seed, false); s.found != "" {
					t.Logf("with seed %d: %s", seed, s.found)
					return
				}
			}
			t.Errorf("nothing goes wrong in %d runs", most)
		})
	}
}

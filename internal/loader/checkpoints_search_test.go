package loader

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// The test of this file searches at random for an order that is absent from a set in Redis
// although it exists. Ordergates with the real set, places and tables share a real Redis and
// a real MariaDB. The change log is one of the test, which tells all at once: what it loses is
// told as a doubt, as the real one does. A whole run lasts about a second.

const (
	searchView    = 10 * time.Millisecond
	searchOverlap = 100 * time.Millisecond
	// lastView is the view of the ordergates that start when all goes well, and have to
	// refuse. A processor that others keep busy takes longer than searchView for each.
	lastView = 300 * time.Millisecond
)

// setSearch is one run.
type setSearch struct {
	t        *testing.T
	random   *rand.Rand
	addr     string
	client   *redis.Client
	db       *sql.DB
	dsn      string
	suffix   string // of the tables
	capacity uint64 // that of most: a set whose state is lost has to be made for that
	dated    bool   // IDs tell their day
	days     int64  // that have passed
	view     time.Duration

	mu       sync.RWMutex // of the log
	changes  atomic.Int64 // of the log and its doubts; counted before they are made
	log      []string
	doubts   []string // that the log has
	lives    []*liveSet
	orders   []setOrder
	late     []lateOrder
	dump     map[string]string
	dumpedAt int
	next     int
	trace    []string
	turn     chan struct{}
	fence    atomic.Int64
	lose     atomic.Pointer[context.CancelCauseFunc] // of the turn under way
	refused  int
}

// setOrder is one that exists, and counts.
type setOrder struct{ id, table string }

type lateOrder struct {
	setOrder
	tx    *sql.Tx
	began time.Time
	by    *liveSet
}

func (s *setSearch) say(format string, args ...any) {
	s.trace = append(s.trace, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (s *setSearch) form(format string, id string) string {
	if format == "uuid" {
		return strings.ToLower(id)
	}
	return id
}

// doubt tells all of one. The lock is held.
func (s *setSearch) doubt(reason string) {
	s.changes.Add(1)
	s.doubts = append(s.doubts, reason)
	for _, l := range s.lives {
		l.loader.filter.Doubt(filter.Doubt{Reason: reason})
	}
}

// stop ends an ordergate. One that is killed says nothing more to Redis.
func (s *setSearch) stop(l *liveSet, killed bool) {
	s.say("%s ends, killed: %v", l.name, killed)
	l.dead.Store(killed)
	s.mu.Lock()
	s.lives = slices.DeleteFunc(s.lives, func(o *liveSet) bool { return o == l })
	if killed {
		s.doubt("killed")
	}
	s.mu.Unlock()
	l.cancel()
	l.wg.Wait()
	l.loader.set.Close()
	bedtest.Check(s.t, l.client.Close())
}

// dateOfSearch is where an ID tells its day.
// refuses reports whether an order is refused that does not exist.
// foreign is what the reason is like for which a set is left alone: an operator has to delete
// one of another size, or without its configuration.
var foreign = regexp.MustCompile("was made with|was not made with|has a capacity|has expectedInsertions|has lost its configuration")

// ask asks all for all, and returns what is absent that should not be.
func (s *setSearch) ask() string {
	for _, l := range s.lives {
		for _, o := range s.orders {
			if l.has(o.table) && l.loader.filter.Query(s.t.Context(), s.form(l.setting.format, o.id)) == presence.Absent {
				return o.id + " is absent at " + l.name
			}
		}
		if l.refuses() {
			s.refused++
		}
	}
	return ""
}

func (s *setSearch) createTables() error {
	for _, table := range []string{"a", "b"} {
		if _, err := s.db.ExecContext(s.t.Context(), "CREATE TABLE "+table+s.suffix+" (n BIGINT AUTO_INCREMENT PRIMARY KEY, id CHAR(36) NOT NULL)"); err != nil {
			return err
		}
	}
	return nil
}

// insertBefore inserts orders before there is an ordergate. A set has them, and nobody's
// memory, once a place is behind them.
func (s *setSearch) insertBefore() {
	for _, table := range []string{"a", "b", "a", "b"} {
		o := s.insert(table, nil)
		bedtest.Check(s.t, o.tx.Commit())
		s.orders = append(s.orders, o.setOrder)
	}
	time.Sleep(searchOverlap)
}

// run returns what is wrong, "" if nothing is.
func (s *setSearch) run(steps int) string {
	defer func() {
		for len(s.lives) > 0 {
			s.stop(s.lives[0], false)
		}
		for _, o := range s.late {
			_ = o.tx.Rollback()
		}
	}()
	s.insertBefore()
	for range steps {
		s.act()
		time.Sleep(time.Duration(s.random.IntN(8)) * 5 * time.Millisecond)
		if found := s.ask(); found != "" {
			return found
		}
	}
	s.say("all goes well")
	bedtest.Check(s.t, s.client.ConfigSet(s.t.Context(), "maxmemory", "0").Err())
	for len(s.lives) > 0 {
		s.stop(s.lives[0], false)
	}
	s.view = lastView
	for range 2 {
		how := s.anySetting()
		all := []*liveSet{s.start(how), s.start(how)}
		began := time.Now()
		for len(all) > 0 {
			if found := s.ask(); found != "" {
				return found
			}
			all = slices.DeleteFunc(all, (*liveSet).refuses)
			if len(all) == 0 {
				break
			}
			state, reason := all[0].loader.filter.State()
			if foreign.MatchString(reason) {
				s.say("an operator deletes what is not %s's, for which it is %s", all[0].name, reason)
				for _, key := range s.keys() {
					if strings.Contains(key, "order:bloom:"+how.prefix) {
						bedtest.Check(s.t, s.client.Del(s.t.Context(), key).Err())
					}
				}
			}
			if time.Since(began) > 20*time.Second {
				return fmt.Sprintf("%s is never certain: %s, %s", all[0].name, state, reason)
			}
			time.Sleep(5 * time.Millisecond)
		}
		for len(s.lives) > 0 {
			s.stop(s.lives[0], false)
		}
	}
	return ""
}

// TestSearchSets runs a few, with SOAK=N so many times 500, or SEED alone, which decides on
// all that the test does, and not on who is quicker.
func TestSearchSets(t *testing.T) {
	bedtest.WithoutRace(t)
	const workers = 4
	first, n := 1, 4*workers
	if text := os.Getenv("SEED"); text != "" {
		first, _ = strconv.Atoi(text)
		n = 1
	} else if text := os.Getenv("SOAK"); text != "" {
		times, _ := strconv.Atoi(text)
		first, n = rand.IntN(1<<40), 500*max(times, 1)
	}
	bed := bedtest.New(t)
	maria := bed.MariaDB()
	db, err := sql.Open("mysql", maria.DSN())
	bedtest.Check(t, err)
	t.Cleanup(func() { bedtest.Check(t, db.Close()) })
	var next, refused atomic.Int64
	next.Store(int64(first))
	began := time.Now()
	var wg sync.WaitGroup
	for range min(n, workers) {
		server := bed.Redis(append(bed.RedisBloomArgs(), "--enable-debug-command", "yes", "--save", "", "--appendonly", "no")...)
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		wg.Go(func() {
			for seed := next.Add(1) - 1; seed < int64(first+n) && !t.Failed(); seed = next.Add(1) - 1 {
				s := &setSearch{
					t: t, random: rand.New(rand.NewPCG(uint64(seed), 7)), addr: server.Addr(), client: client, db: db, dsn: maria.DSN(),
					suffix: strconv.FormatInt(seed, 10), turn: make(chan struct{}, 1), view: searchView,
				}
				s.capacity = []uint64{60, 1000}[s.random.IntN(2)]
				s.dated = s.random.IntN(3) == 0
				if err := client.FlushAll(t.Context()).Err(); err != nil {
					t.Error(err)
					return
				}
				if err := s.createTables(); err != nil {
					t.Error(err)
					return
				}
				if found := s.run(30); found != "" {
					t.Errorf("seed %d: %s\n%s", seed, found, strings.Join(s.trace, "\n"))
				}
				refused.Add(int64(s.refused))
				for _, table := range []string{"a", "b"} {
					_, _ = db.ExecContext(t.Context(), "DROP TABLE "+table+s.suffix)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d runs from seed %d in %v: %d times an order was refused that does not exist", next.Load()-int64(first), first, time.Since(began).Round(time.Millisecond), refused.Load())
	if n > 1 && refused.Load() == 0 {
		t.Error("nothing was ever absent")
	}
}

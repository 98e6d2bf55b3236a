package loader

import (
	"database/sql"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFilledByAnother has a set be lost, and filled by an ordergate that does not have one of
// the tables, while one that has it runs and does not know the orders in it by itself.
func TestFilledByAnother(t *testing.T) {
	bed := bedtest.New(t)
	maria, server := bed.MariaDB(), bed.Redis()
	db, err := sql.Open("mysql", maria.DSN())
	bedtest.Check(t, err)
	t.Cleanup(func() { bedtest.Check(t, db.Close()) })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { bedtest.Check(t, client.Close()) })
	s := &setSearch{t: t, addr: server.Addr(), client: client, db: db, dsn: maria.DSN(), turn: make(chan struct{}, 1)}
	bedtest.Check(t, s.createTables())
	s.insertBefore()
	how := setting{setKind: settingsOfSearch.kinds[0], sources: []string{"a", "b"}, format: "uuid", capacity: 1000}
	begin := func() *liveSet {
		t.Helper()
		l := s.start(how)
		t.Cleanup(func() {
			if !l.dead.Load() {
				s.stop(l, true)
			}
		})
		bedtest.Eventually(t, l.name+" is certain", l.refuses)
		return l
	}
	two := begin()
	bedtest.Eventually(t, "nobody's memory has the orders", func() bool {
		if two.loader.filter.CountInMemory() == 0 {
			return true
		}
		s.stop(two, true)
		time.Sleep(searchOverlap)
		two = begin()
		return false
	})
	two.idle.Store(true)
	how.sources = []string{"a"}
	one := begin()
	ask := func() {
		t.Helper()
		if found := s.ask(); found != "" {
			t.Fatal(found)
		}
	}
	bedtest.Check(t, client.Del(t.Context(), "order:bloom:one:{0}").Err())
	bedtest.Eventually(t, "it is filled", func() bool { ask(); return one.refuses() })
	for range 100 {
		ask()
	}
	bedtest.Eventually(t, "all tables are in it", func() bool { ask(); return two.refuses() })
}

package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// insertRange inserts rows, a thousand in a statement.
func (o *orderTable) insertRange(from, to int) {
	o.t.Helper()
	for ; from <= to; from += 1000 {
		var rows []string
		for id := from; id < from+1000 && id <= to; id++ {
			rows = append(rows, fmt.Sprintf("(%d,'x')", id))
		}
		o.exec("INSERT INTO orders VALUES " + strings.Join(rows, ","))
	}
}

// followedBed is a followed table with the orders 100001 to 101000, and one ordergate with a snapshot.
type followedBed struct {
	*bedtest.Bed
	t        testing.TB
	redis    *testbed.Redis
	table    *orderTable
	settings tableSettings
	one      *tableGate
}

// eachFollowed runs a test with each database whose log is followed. The end of the table alone is
// read again where that is enough.
func eachFollowed(t *testing.T, test func(b *followedBed)) {
	t.Helper()
	t.Parallel()
	for _, tc := range follows {
		if strings.Contains(tc.source, "poll") {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := &followedBed{Bed: bedtest.New(t), t: t}
			b.redis, b.table = b.Redis(), tc.table(t, b.Bed, 0, tc.args...)
			b.table.insertRange(100_001, 101_000)
			b.settings = tableSettings{member: "one", source: tc.source, filter: fmt.Sprintf(", snapshot: {path: %q}, change_log: {keep: 10_000}", filepath.Join(t.TempDir(), "orders.snap"))}
			b.start()
			b.one.becomes(50_000, "absent")
			log, err := changelog.New(newClient(t, b.redis.Addr()), "orders", func(string) {}, changelog.Options{})
			must(t, err)
			began := time.Now()
			bedtest.Eventually(t, "the mark is behind all rows", func() bool { // that were read an overlap after the load
				must(t, log.RecordDoubt(t.Context(), changelog.Doubt{Kind: changelog.Lost, Reason: "a test"}))
				return time.Since(began) > 3*time.Second
			})
			b.one.becomes(50_000, "absent")
			test(b)
		})
	}
}

func (b *followedBed) start() { b.one = b.table.gate(b.Bed, b.redis.Addr(), b.settings) }

// wantAll waits until an order can be absent, and looks up orders that exist.
func (b *followedBed) wantAll(ids ...int) {
	b.t.Helper()
	b.one.becomes(50_000, "absent")
	absent := 0
	for _, id := range ids {
		if b.one.answer(id) == "absent" {
			absent++
		}
	}
	if absent > 0 {
		b.t.Errorf("%d of %d orders that exist are absent", absent, len(ids))
	}
}

// TestImportDuringARestart has older orders with numbers of their own come into the table while one
// ordergate is away: more than the change log keeps.
func TestImportDuringARestart(t *testing.T) {
	eachFollowed(t, func(b *followedBed) {
		other := b.settings
		other.member, other.filter = "two", ", change_log: {keep: 10_000}"
		two := b.table.gate(b.Bed, b.redis.Addr(), other)
		two.becomes(50_000, "absent")
		must(b.t, b.one.Stop())
		b.table.insertRange(1, 15_000)
		two.becomes(15_000, "maybe")
		b.start()
		var some []int
		for id := 1; id <= 15_000; id += 149 {
			some = append(some, id)
		}
		b.wantAll(some...)
		if !b.one.said("from its snapshot") {
			b.t.Error("the snapshot was not used")
		}
	})
}

// TestSharedSnapshotDoesNotJoin has older orders come into the table after one ordergate has stored its
// snapshot in Redis. The change log is deleted before another ordergate starts from that snapshot.
func TestSharedSnapshotDoesNotJoin(t *testing.T) {
	eachFollowed(t, func(b *followedBed) {
		b.table.insert(200_000)
		two := b.settings
		two.member, two.filter = "two", ", change_log: {keep: 10_000}"
		two.source += ", batch: 100, pause: 300ms" // longer than an overlap, so that the mark moves
		b.table.gate(b.Bed, b.redis.Addr(), two).becomes(50_000, "absent")
		b.table.insertRange(110_001, 125_000)
		b.one.becomes(125_000, "maybe")
		var log []string
		for _, key := range []string{"log", "meta", "members", "inbox", "readers", "reads", "had"} {
			log = append(log, "ordergate:{orders}:"+key)
		}
		must(b.t, newClient(b.t, b.redis.Addr()).Del(b.t.Context(), log...).Err())
		b.one.becomes(50_000, "absent")
		b.settings.member, b.settings.filter = "three", two.filter
		b.start()
		var some []int
		for id := 110_001; id <= 125_000; id += 149 {
			some = append(some, id)
		}
		b.wantAll(some...)
		if !b.one.said("from its snapshot") {
			b.t.Error("the snapshot in Redis was not used")
		}
	})
}

// TestRowWhileRedisRestartsEmpty inserts an older order while a Redis without persistence is away.
func TestRowWhileRedisRestartsEmpty(t *testing.T) {
	eachFollowed(t, func(b *followedBed) {
		b.redis.Kill()
		b.table.insert(5)
		must(b.t, b.redis.Restart(b.t.Context()))
		b.one.becomes(5, "maybe")
		b.wantAll(5)
	})
}

// TestPlaceLost loses the place of the follower while none runs.
func TestPlaceLost(t *testing.T) {
	eachFollowed(t, func(b *followedBed) {
		must(b.t, b.one.Stop())
		b.table.insert(5)
		must(b.t, newClient(b.t, b.redis.Addr()).Del(b.t.Context(), "ordergate:{orders}:follow").Err())
		b.start()
		b.wantAll(5)
	})
}

// TestRollingChangeOfAColumn has one ordergate read another column of IDs than the other. The follower of
// the one says nothing about the other's.
func TestRollingChangeOfAColumn(t *testing.T) {
	t.Parallel()
	for _, tc := range follows {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			table := tc.table(t, bed, 100, tc.args...)
			table.exec("ALTER TABLE orders ADD other BIGINT")
			table.exec("UPDATE orders SET other = id + 100000")
			one := table.gate(bed, redis.Addr(), tableSettings{member: "one", source: tc.source})
			one.becomes(50_000, "absent")
			changed := edit(t, "id_column: id", "id_column: other")(table.config(redis.Addr(), tableSettings{member: "two", source: tc.source}))
			two := asTableGate(t, bed, bed.Gate(bed.Build("./cmd/sidecar", true), changed, "ORDERS_DSN="+table.dsn))
			if strings.Contains(tc.source, "logical") { // both have one slot
				if got := two.answer(50_000); got != "unknown" {
					t.Errorf("while the other follows: %s", got)
				}
				must(t, one.Stop())
			}
			two.becomes(50_000, "absent")
			table.exec("INSERT INTO orders (id, other) VALUES (5000, 105000)")
			two.becomes(105_000, "maybe")
			two.becomes(50_000, "absent")
		})
	}
}

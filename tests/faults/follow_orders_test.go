package faults

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// followedOrder is a row that others wrote.
type followedOrder struct {
	id, alt int64
	since   time.Time // when its commit had returned
	gone    bool
}

// insert writes rows, in front of all others or behind them.
func (c *followCampaign) insert(n int64, front bool) {
	first, id := c.next, "n"
	c.next += n
	if front {
		c.front -= n
		id = fmt.Sprintf("n - %d", first-c.front)
	}
	from := fmt.Sprintf(c.series, first, first+n-1)
	columns, values := "order_id, alt_id", "n, n + 5000000000000"
	if front {
		columns, values = "id, "+columns, id+", "+values
	}
	c.must(fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s", c.table, columns, values, from))
	c.known(first, n)
}

// known adds rows that are visible from now on.
func (c *followCampaign) known(first, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := first; id < first+n; id++ {
		o := &followedOrder{id: id, alt: id + 5_000_000_000_000, since: time.Now()}
		c.orders[id] = o
		c.list = append(c.list, o)
	}
}

// remove has the orders not exist that which selects by their places in the list.
func (c *followCampaign) remove(which func(i int, o *followedOrder) bool) (old []*followedOrder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rest []*followedOrder
	for i, o := range c.list {
		if !which(i, o) {
			rest = append(rest, o)
			continue
		}
		o.gone = true
		delete(c.orders, o.id)
		old = append(old, o)
	}
	c.list = rest
	return old
}

// forget has no order exist, until reread.
func (c *followCampaign) forget() map[int64]*followedOrder {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.orders
	c.orders, c.list = make(map[int64]*followedOrder), nil
	for _, o := range old {
		o.gone = true
	}
	return old
}

// anew has no order exist while the database is replaced, and those that it has afterwards.
func (c *followCampaign) anew(do func()) {
	old := c.forget()
	do()
	c.forget() // do may have written rows that are lost
	c.reread(old)
}

// reread has those orders exist that the database has.
func (c *followCampaign) reread(old map[int64]*followedOrder) {
	rows, err := c.db.Query("SELECT order_id, alt_id FROM " + c.table)
	bedtest.Check(c.t, err)
	defer func() { _ = rows.Close() }()
	c.mu.Lock()
	defer c.mu.Unlock()
	for rows.Next() {
		o := &followedOrder{since: time.Now()}
		bedtest.Check(c.t, rows.Scan(&o.id, &o.alt))
		if before := old[o.id]; before != nil {
			o.since = before.since
		}
		c.orders[o.id] = o
		c.list = append(c.list, o)
	}
	bedtest.Check(c.t, rows.Err())
	slices.SortFunc(c.list, func(a, b *followedOrder) int { return a.since.Compare(b.since) })
}

// pick returns an order that is old enough, often one of the latest.
func (c *followCampaign) pick(r *rand.Rand) *followedOrder {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.list)
	if n == 0 {
		return nil
	}
	i := r.IntN(n)
	if r.IntN(2) == 0 {
		i = n - 1 - r.IntN(min(n, 15_000))
	}
	if o := c.list[i]; !o.gone && time.Since(o.since) > followStale+followMargin {
		return o
	}
	return nil
}

// find looks for a row by its columns, with and without indexes, and reports whether it is there in
// every way.
func (c *followCampaign) find(table string, o *followedOrder) (found string, whole bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	whole = true
	var id int64
	for _, way := range c.ways {
		db, err := sql.Open(c.driver, c.dsn+way.dsn)
		bedtest.Check(c.t, err)
		defer func() { _ = db.Close() }()
		for _, where := range []string{fmt.Sprintf("order_id = %d", o.id), fmt.Sprintf("alt_id = %d", o.alt), "id = "} {
			if where == "id = " {
				where += fmt.Sprint(id)
			}
			var n int
			err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*), coalesce(max(id), 0) FROM %s%s WHERE %s", table, way.table, where)).Scan(&n, &id)
			found += fmt.Sprintf("  %d rows with %s %s (%v)\n", n, where, way.name, err)
			whole = whole && (err != nil || n == 1)
		}
	}
	return found, whole
}

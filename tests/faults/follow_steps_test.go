package faults

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

var (
	followFor  = flag.Duration("follow-for", followLong, "how long TestFollowCampaign goes on for each database")
	followStep = flag.String("follow-step", "", "regular expression: which steps of TestFollowCampaign")
)

// redisServers begins the names of the steps that replace one.
const redisServers = "servers of Redis: "

// steps are what others write, and the faults. Others write during each fault.
func (c *followCampaign) steps(s *testbed.Sentinel, dir string) map[string]func() {
	steps := c.writes()
	c.gateSteps(steps)
	c.rollingSteps(steps, s, dir)
	c.databaseSteps(steps)
	c.redisSteps(steps, s)
	return steps
}

// writes are what others write.
func (c *followCampaign) writes() map[string]func() {
	return map[string]func(){
		"rows": func() {
			for range 5 + c.r.IntN(20) {
				c.insert(1, false)
				wait(c.t.Context(), between(c.r, 0, 50*time.Millisecond))
			}
		},
		"import in front":   func() { c.insert(10_500, true) },
		"large transaction": func() { c.insert(5000, false) },
		"row in front":      func() { c.insert(1, true) },
		"two-phase commit":  func() { c.twoPhases(func() {}) },
		"change of IDs":     c.changeIDs,
	}
}

// write has others write something.
func (c *followCampaign) write() {
	writes := c.writes()
	names := slices.Sorted(maps.Keys(writes))
	writes[names[c.r.IntN(len(names))]]()
}

// away kills all instances, and starts them again afterwards.
func (c *followCampaign) away(do func()) {
	for _, g := range c.gates {
		g.gate.Kill()
	}
	do()
	for _, g := range c.gates {
		c.again(g)
	}
}

func (c *followCampaign) gateSteps(steps map[string]func()) {
	steps["kill during a two-phase commit"] = func() {
		g := c.one()
		var again sync.WaitGroup // the creation of a slot waits for the commit
		defer again.Wait()
		c.twoPhases(func() {
			g.gate.Kill()
			again.Go(func() { c.again(g) })
		})
	}
	steps["kill"] = func() {
		g := c.one()
		g.gate.Kill()
		c.write()
		wait(c.t.Context(), between(c.r, 0, 2*time.Second))
		c.again(g)
	}
	steps["kill all"] = func() { c.away(c.write) }
	steps["stop"] = func() {
		g := c.one()
		bedtest.Check(c.t, g.gate.Pause())
		c.write()
		wait(c.t.Context(), between(c.r, 0, 12*time.Second))
		bedtest.Check(c.t, g.gate.Resume())
	}
	steps["cut from the database"] = func() {
		g := c.one()
		c.as(g.n, c.cut)
		c.write()
		wait(c.t.Context(), between(c.r, 0, 6*time.Second))
		c.as(g.n, c.heal)
	}
	steps["network to the database"] = func() {
		faults := []func(){c.proxy.swallow, c.proxy.cut, func() { c.proxy.latency(50) }}
		faults[c.r.IntN(len(faults))]()
		c.write()
		wait(c.t.Context(), between(c.r, 0, 8*time.Second))
		c.proxy.heal()
	}
}

func (c *followCampaign) rollingSteps(steps map[string]func(), s *testbed.Sentinel, dir string) {
	roll := func(change func(g *followGate)) {
		c.generation++
		for _, g := range c.gates {
			bedtest.Check(c.t, g.gate.Stop())
			change(g)
			bedtest.Check(c.t, g.gate.WriteConfig(c.config(g, s, dir)))
			c.again(g)
			c.write()
			wait(c.t.Context(), between(c.r, 0, 3*time.Second))
		}
		if c.slot != "" { // the old one would keep the log
			_, _ = c.db.Exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
		}
	}
	steps["rolling change of the DSN"] = func() {
		if c.host == "localhost" {
			c.host = "127.0.0.1"
		} else {
			c.host = "localhost"
		}
		roll(func(*followGate) {})
	}
	steps["rolling change of the ID column"] = func() {
		alt := !c.gates[0].alt.Load()
		roll(func(g *followGate) { g.alt.Store(alt) })
	}
	steps["rolling change of the table"] = func() {
		to := fmt.Sprintf("orders_%d", c.next)
		c.must(fmt.Sprintf("ALTER TABLE %s RENAME TO %s", c.table, to))
		c.mu.Lock()
		c.table = to
		c.mu.Unlock()
		c.backup = "" // has the former name
		roll(func(*followGate) {})
	}
}

func (c *followCampaign) databaseSteps(steps map[string]func()) {
	anew := func(do func()) func() { return func() { c.anew(do) } }
	steps["database killed"] = anew(func() { c.kill(c.r) })
	steps["database killed during a two-phase commit"] = func() {
		c.twoPhases(func() { c.anew(func() { c.kill(c.r) }) })
	}
	steps["database restored"] = anew(func() { c.restore(c.r) })
	steps["database restored while all are away"] = func() {
		c.away(func() {
			c.anew(func() { c.restore(c.r) })
			for range c.r.IntN(10) { // so that its log has the former position again
				c.write()
			}
		})
	}
	steps["database failed over"] = func() {
		c.anew(func() {
			if !c.replicated {
				c.replica(c.r)
			}
		})
		c.insert(10, false)
		last := c.next - 1
		bedtest.Eventually(c.t, "the standby has the last row", func() bool { return c.caughtUp(last) })
		c.anew(func() {
			var lossy func()
			if c.r.IntN(2) == 0 {
				lossy = func() { c.insert(5, c.r.IntN(2) == 0); wait(c.t.Context(), time.Second) }
			}
			c.failover(lossy)
		})
	}
	if c.partitioned {
		steps["partition detached and attached"] = c.attachPartition
	}
	if c.kind == "mysql" {
		steps["table swapped"] = anew(func() {
			c.must("CREATE TABLE copy LIKE "+c.table, "INSERT INTO copy SELECT * FROM "+c.table,
				fmt.Sprintf("RENAME TABLE %s TO previous, copy TO %s", c.table, c.table), "DROP TABLE previous")
		})
		steps["binary logs purged"] = func() {
			g := c.one()
			g.gate.Kill()
			c.write()
			c.must("FLUSH BINARY LOGS")
			var name string
			var position, x, y any
			bedtest.Check(c.t, c.db.QueryRow("SHOW MASTER STATUS").Scan(&name, &position, &x, &y))
			c.must("PURGE BINARY LOGS TO '" + name + "'")
			c.again(g)
		}
	} else {
		steps["slot dropped"] = func() {
			for range 50 {
				_, err := c.db.Exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
				if err == nil {
					_, err = c.db.Exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
				}
				if err == nil {
					break
				}
			}
			c.write()
		}
	}
}

func (c *followCampaign) redisSteps(steps map[string]func(), s *testbed.Sentinel) {
	f := failovers{c.fleet, s}
	for _, what := range f.faults() {
		if what.name != "split" {
			steps[redisServers+what.name] = func() { what.do(c.t.Context(), c.r); c.write() }
		}
	}
	onRedis := func(do func(ctx context.Context, keys []string) error) func() {
		return func() {
			ctx := c.t.Context()
			client := f.current(ctx)
			if client == nil {
				return
			}
			keys, err := client.Keys(ctx, "ordergate:{orders}:*").Result()
			if err == nil && len(keys) > 0 {
				err = do(ctx, keys)
			}
			if err != nil {
				c.t.Logf("redis: %v", err)
			}
			c.write()
		}
	}
	steps["redis key deleted"] = onRedis(func(ctx context.Context, keys []string) error {
		return f.current(ctx).Del(ctx, keys[c.r.IntN(len(keys))]).Err()
	})
	steps["redis field deleted"] = onRedis(func(ctx context.Context, _ []string) error {
		client := f.current(ctx)
		fields, err := client.HKeys(ctx, logKey("follow")).Result()
		if err == nil && len(fields) > 0 {
			err = client.HDel(ctx, logKey("follow"), fields[c.r.IntN(len(fields))]).Err()
		}
		return err
	})
	steps["redis emptied"] = onRedis(func(ctx context.Context, _ []string) error { return f.current(ctx).FlushAll(ctx).Err() })
	steps["log trimmed"] = onRedis(func(ctx context.Context, _ []string) error {
		return f.current(ctx).XTrimMaxLen(ctx, logKey("log"), 10).Err()
	})
}

func (c *followCampaign) one() *followGate { return c.gates[c.r.IntN(len(c.gates))] }

// again starts an instance that has ended.
func (c *followCampaign) again(g *followGate) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := g.gate.Restart(ctx); err != nil {
		c.t.Errorf("gate %d: %v\n%s", g.n, err, c.states())
	}
}

// twoPhases prepares rows, and commits them after meanwhile.
func (c *followCampaign) twoPhases(meanwhile func()) {
	first, n := c.next, int64(20)
	c.next += n
	c.prepared = fmt.Sprintf("x%d", first)
	db := c.db
	conn, err := db.Conn(context.Background())
	bedtest.Check(c.t, err)
	do := func(statements ...string) {
		for _, s := range statements {
			s = strings.ReplaceAll(s, "NAME", c.prepared)
			if _, err := conn.ExecContext(context.Background(), s); err != nil {
				c.t.Fatalf("%s: %v", s, err)
			}
		}
	}
	do(c.prepare[0], fmt.Sprintf("INSERT INTO %s (order_id, alt_id) SELECT n, n + 5000000000000 FROM %s", c.table, fmt.Sprintf(c.series, first, first+n-1)))
	do(c.prepare[1:]...)
	meanwhile()
	if c.db != db { // the server was killed
		_ = conn.Close()
		conn, err = c.db.Conn(context.Background())
		bedtest.Check(c.t, err)
	}
	wait(c.t.Context(), between(c.r, 0, 3*time.Second))
	do(c.commit)
	c.prepared = ""
	_ = conn.Close()
	c.known(first, n)
}

// attachPartition detaches the partition low, and attaches it with more rows.
func (c *followCampaign) attachPartition() {
	low := c.remove(func(_ int, o *followedOrder) bool { return o.id < restIDs })
	n := int64(20)
	c.front -= n
	statements := []string{
		fmt.Sprintf(c.detach, c.table),
		fmt.Sprintf("INSERT INTO low SELECT %d + n, %d + n, 5000000000000 + %[2]d + n FROM %s", c.front, c.low, fmt.Sprintf(c.series, 0, n-1)),
		fmt.Sprintf(c.attach, c.table),
	}
	if c.r.IntN(2) == 0 { // MariaDB commits before and after each
		statements = slices.Concat([]string{"BEGIN"}, statements, []string{"COMMIT"})
	}
	conn, err := c.db.Conn(context.Background())
	bedtest.Check(c.t, err)
	for _, s := range statements {
		_, err := conn.ExecContext(context.Background(), s)
		bedtest.Check(c.t, err)
	}
	_ = conn.Close()
	for _, o := range low {
		c.known(o.id, 1)
	}
	c.known(c.low, n)
	c.low += n
}

// changeIDs gives some rows other IDs.
func (c *followCampaign) changeIDs() {
	for _, o := range c.remove(func(i int, _ *followedOrder) bool { return i >= len(c.list)-20 }) {
		id := c.next
		c.next++
		c.must(fmt.Sprintf("UPDATE %s SET order_id = %d, alt_id = %d WHERE order_id = %d", c.table, id, id+5_000_000_000_000, o.id))
		c.known(id, 1)
	}
}

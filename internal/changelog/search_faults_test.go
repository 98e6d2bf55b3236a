package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// deepest bounds how deep actions nest within the commands of others.
	deepest = 3
	// pollsEvery is the interval of reads while time passes: short enough for a lease.
	pollsEvery = 500 * time.Millisecond
	aWindow    = 3 * pollsEvery
)

// primary is a server that is the primary, or acts as one: a database of the one server that runs.
type primary struct {
	number int
	client *redis.Client
	clock  time.Duration // by how much it is ahead
	info   string        // replication info that its scripts receive
}

// promote gives a server its own replication ID.
func (m *primary) promote(n int) {
	former := "0"
	if _, rest, ok := strings.Cut(m.info, "master_replid:"); ok {
		former, _, _ = strings.Cut(rest, "\r\n")
	}
	m.info = fmt.Sprintf("master_replid:%040x\r\nmaster_replid2:%s\r\n", n, former)
}

// clockOfRun is the clock that run sets.
const clockOfRun = "{string.match(redis.call('GET', 'clock'), '(%d+) (%d+)')}"

// reportToTest makes a script take the clock, a Lua expression in the form of TIME, and the
// replication info from the test.
func reportToTest(source, clock string) string {
	return strings.NewReplacer(
		"redis.call('TIME')", clock,
		"redis.pcall('INFO', 'replication')", "redis.call('GET', 'info')",
	).Replace(source)
}

// run runs a command. With full, the server refuses commands that need more memory.
func (m *primary) run(ctx context.Context, cmd redis.Cmder, full bool) error {
	at := time.Now().Add(m.clock)
	_, _ = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.MSet(ctx, "clock", fmt.Sprintf("%d %06d", at.Unix(), at.Nanosecond()/1000), "info", m.info)
		if full {
			p.ConfigSet(ctx, "maxmemory", "1")
			defer p.ConfigSet(ctx, "maxmemory", "0")
		}
		return p.Process(ctx, cmd)
	})
	return cmd.Err()
}

// line sends the commands of an ordergate to the server that it takes for the primary, with faults
// on the way. All runs share its client.
type line struct {
	client *redis.Client
	of     *ordergate
}

// DialHook implements redis.Hook.
func (*line) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (*line) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (l *line) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		o, s := l.of, l.of.search
		name := o.commandName(cmd)
		lost := func(what string) error {
			s.log("%s: %s of %s is lost", o.instanceID, what, name)
			cmd.SetErr(errCut)
			return errCut
		}
		s.actWithin(o, "before "+name)
		if s.strikes(40) {
			return lost("the call")
		}
		full := s.can.full && s.strikes(60)
		err := s.primaries[o.primary].run(ctx, cmd, full)
		if s.saysMuch {
			s.log("%s: %s at %d, memory full %v: %.300s", o.instanceID, name, o.primary, full, cmd)
		}
		if s.strikes(40) {
			s.log("%s: %s is repeated", o.instanceID, name)
			err = s.primaries[o.primary].run(ctx, cmd, false)
		}
		s.actWithin(o, "after "+name)
		if s.strikes(40) {
			return lost("the reply")
		}
		return err
	}
}

func (o *ordergate) commandName(cmd redis.Cmder) string {
	l := o.log
	for name, script := range map[string]*redis.Script{
		"page": l.page, "append": l.append, "join": l.join, "leave": l.leave,
		"clear": l.clear, "recall": l.recall, "adopt": l.adopt, "trim": l.trim,
	} {
		if runs(cmd, script) {
			return name
		}
	}
	return cmd.Name()
}

// strikes reports whether a fault strikes now, with a probability of 1 in n.
func (s *search) strikes(of int) bool { return !s.noFaults && s.random.IntN(of) == 0 }

// actWithin may let something happen while an ordergate runs a command.
func (s *search) actWithin(o *ordergate, when string) {
	if s.depth < deepest && s.strikes(6) {
		s.log("%s: %s", o.instanceID, when)
		s.act()
	}
}

// copyTo makes a replica of a server, with its own clock.
func (s *search) copyTo(from, to int) {
	ctx, source, target := context.Background(), s.primaries[from], s.primaries[to]
	s.must(target.client.FlushDB(ctx).Err())
	keys, err := source.client.Keys(ctx, "ordergate:*").Result()
	s.must(err)
	for _, key := range keys {
		s.must(source.client.Copy(ctx, key, key, to, true).Err())
	}
	target.info = source.info
}

// failover promotes the replica. Some ordergates may use the demoted primary for a while, if all of
// them are members there: it would not wait for one that never joined.
func (s *search) failover() {
	former := s.current
	s.current = s.replica
	s.next++
	s.primaries[s.current].promote(s.next)
	used := map[int]bool{s.current: true, former: true}
	for _, o := range s.ordergates {
		used[o.primary] = true
	}
	for i := range s.primaries {
		if !used[i] {
			s.replica = i
		}
	}
	if s.can.clocks {
		s.primaries[s.replica].clock = time.Duration(s.random.IntN(3)-1) * 250 * time.Millisecond
	}
	s.copyTo(s.current, s.replica)
	stay := s.random.IntN(2) == 0 && !slices.ContainsFunc(s.ordergates, func(o *ordergate) bool { return !o.log.member.isJoined() })
	s.failedOver = time.Now()
	for _, o := range s.ordergates {
		if !stay || s.random.IntN(3) == 0 {
			o.primary = s.current
		}
	}
	s.log("failover from %d to %d, some stay: %v", former, s.current, stay)
}

// pass lets time pass. Ordergates continue to read, unless they are paused or in the middle of a
// read.
func (s *search) pass(d time.Duration) {
	s.depth++
	defer func() { s.depth-- }()
	for end := time.Now().Add(d); time.Now().Before(end); {
		step := min(pollsEvery, time.Until(end))
		time.Sleep(step)
		s.endCalls(longestCall - 2*pollsEvery)
		if step < pollsEvery {
			continue
		}
		for _, o := range s.ordergates {
			if o.primary != s.current && time.Since(s.failedOver) > longestAway/4 {
				o.primary = s.current
			}
			_ = o.read()
		}
	}
}

// act performs a random action.
func (s *search) act() {
	s.depth++
	defer func() { s.depth-- }()
	o := s.ordergates[s.random.IntN(len(s.ordergates))]
	switch n := s.random.IntN(128); {
	case n < 18:
		o.create()
	case n < 21:
		if s.can.lostIDs {
			o.createWithoutID()
		}
	case n < 50:
		_ = o.read()
		o.load()
	case n < 54:
		o.recover()
	case n < 57:
		o.retry()
	case n < 66:
		s.copyTo(s.current, s.replica)
		s.log("replicated")
	case n < 71:
		s.failover()
	case n < 75:
		o.primary = s.current
	case n < 78:
		if !o.busy() {
			o.start(s.random.IntN(2) == 0)
		}
	case n < 82:
		if s.can.clear {
			o.learn()
		}
	case n < 86:
		o.save()
	case n < 91:
		o.snapshot()
	case n < 93:
		if s.depth == 1 {
			s.flush()
		}
	case n < 95:
		s.push()
	case n < 97:
		s.damage()
	case n < 107:
		s.endCalls(0)
	case n < 113:
		o.pausedUntil = time.Now().Add(time.Duration(1+s.random.IntN(4)) * time.Second)
		s.log("%s is paused", o.instanceID)
	case n < 121:
		d := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 2100 * time.Millisecond}[s.random.IntN(4)]
		s.log("%v pass", d)
		s.pass(d)
	case n < 123:
		s.endFor(o)
	case n < 125:
		s.setBack(o)
	default:
		o.leave()
	}
}

// endFor ends an ordergate until after its expulsion. The others are not away for as long: orders
// that they would send to clients then are not covered.
func (s *search) endFor(o *ordergate) {
	if s.depth > 1 {
		return
	}
	o.start(false)
	s.log("%s is not there for a long time", o.instanceID)
	for _, other := range s.ordergates {
		other.primary, other.pausedUntil = s.current, time.Time{}
	}
	o.pausedUntil = time.Now().Add(longestAway + 2*time.Second)
	s.pass(longestAway + time.Second)
}

// setBack sets the clock of an ordergate's server back by less than the time since the last read of
// the log. Then an ordergate reads the log.
func (s *search) setBack(o *ordergate) {
	const step = 250 * time.Millisecond
	m, calm := s.primaries[o.primary], s.noFaults
	noted, err := m.client.HGet(context.Background(), s.key("meta"), "now").Int64()
	if !s.can.clocks || err != nil || noted <= time.Now().Add(m.clock-step).UnixMilli() || o.reading || o.paused() {
		return
	}
	m.clock -= step
	s.log("the clock of %d is set back", m.number)
	s.noFaults = true
	_ = o.read()
	s.noFaults = calm
}

// push pushes an ID to the inbox.
func (s *search) push() {
	if !s.can.inbox {
		return
	}
	c := s.newOrder()
	c.committed = true
	s.log("%s is pushed to the inbox", c.id)
	s.must(s.primaries[s.current].client.RPush(context.Background(), s.key("inbox"), c.id).Err())
}

// damage damages the log.
func (s *search) damage() {
	if !s.can.damage || s.depth == 1 {
		return
	}
	ctx, client := context.Background(), s.primaries[s.current].client
	if s.random.IntN(2) == 0 {
		key := []string{"log", "meta", "members", "snapshot"}[s.random.IntN(4)]
		s.log("%s is deleted", key)
		s.must(client.Del(ctx, s.key(key)).Err())
		return
	}
	rows, err := client.XRange(ctx, s.key("log"), "-", "+").Result()
	s.must(err)
	if len(rows) > 0 {
		row := rows[s.random.IntN(len(rows))].ID
		s.log("entry %s is deleted", row)
		s.must(client.XDel(ctx, s.key("log"), row).Err())
	}
}

// flush lets time pass without faults until nothing is left to publish.
func (s *search) flush() {
	calm := s.noFaults
	s.noFaults = true
	defer func() { s.noFaults = calm }()
	s.log("all goes well for a while")
	for _, o := range s.ordergates {
		o.primary, o.pausedUntil = s.current, time.Time{}
	}
	for n, good := 0, 0; n < 12 && good < 3; n++ {
		s.pass(pollsEvery)
		sure := true
		for _, o := range s.ordergates {
			err := o.read()
			o.retry()
			o.load()
			sure = sure && err == nil && o.filter.Pending() == 0
		}
		if good++; !sure {
			good = 0
		}
	}
	for range 2 {
		for _, o := range s.ordergates {
			o.recover()
		}
	}
}

// table is a source that has each order as soon as it is committed, as one ordergate reads it. The
// ordergate reads after a mark below which no order can be committed any more. See package source.
type table struct {
	mark         int
	seen         []tableRow
	began, ended time.Time // of the last read
	upTo         int       // the last read has yielded every order up to this number
}

// tableRow is the last row of a table at a time.
type tableRow struct {
	at     time.Time
	number int
}

// overlap is how long a call may take from the choice of a number to the commit.
const overlap = 2 * time.Second

// readTable reads the rows after the mark. Other actions may happen meanwhile.
func (s *search) readTable(t *table, yield func(id string) error) error {
	began := time.Now()
	s.dropLate()
	next := *t
	for len(next.seen) > 0 && time.Since(next.seen[0].at) >= s.overlap {
		next.mark, next.seen = next.seen[0].number, next.seen[1:]
	}
	last := t.mark
	var ids []string
	for _, c := range s.calls {
		if number, _ := strconv.Atoi(c.id); c.committed && number > t.mark {
			ids, last = append(ids, c.id), max(last, number)
		}
	}
	next.seen = append(next.seen[:len(next.seen):len(next.seen)], tableRow{began, last})
	if s.depth < deepest && s.strikes(4) {
		s.act()
	}
	for _, id := range ids {
		if err := yield(id); err != nil {
			return err
		}
	}
	if s.strikes(20) {
		return errors.New("the database does not answer")
	}
	next.began, next.ended, next.upTo = began, time.Now(), next.mark
	*t = next
	return nil
}

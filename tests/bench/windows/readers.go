package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// reader is one ordergate, as far as the change log goes.
type reader struct {
	client *redis.Client
	log    *changelog.Log
}

// readers are those of a case.
type readers struct {
	all  []reader
	stop context.CancelFunc
	runs sync.WaitGroup
}

// warmLimit is how long all windows may take to open.
const warmLimit = 30 * time.Second

// start runs so many readers, and returns when the windows of all have held for a second.
func start(ctx context.Context, addr string, n int, window time.Duration) (_ *readers, err error) {
	running, stop := context.WithCancel(ctx)
	rs := &readers{stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, rs.close())
		}
	}()
	for i := range n {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		rs.all = append(rs.all, reader{client: client})
		log, err := changelog.New(client, "orders", func(string) {}, changelog.Options{Member: fmt.Sprintf("reader-%d", i), Window: window})
		if err != nil {
			return nil, err
		}
		rs.all[i].log = log
		rs.runs.Go(func() { _ = log.Run(running) }) // nil unless it is run twice
	}
	deadline := time.Now().Add(warmLimit)
	for row := 0; row < 100; {
		if row++; !rs.certain(n) {
			row = 0
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d readers: not all have a window after %v", n, warmLimit)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return rs, nil
}

func (rs *readers) close() (err error) {
	rs.stop()
	rs.runs.Wait()
	for _, r := range rs.all {
		err = errors.Join(err, r.client.Close())
	}
	return err
}

// certain reports whether at least so many have a window now.
func (rs *readers) certain(n int) bool { return rs.holding() >= n }

func (rs *readers) holding() (n int) {
	for _, r := range rs.all {
		if r.log.Window().Holds() {
			n++
		}
	}
	return n
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// usage is what was used up to a moment.
type usage struct {
	at         time.Time
	redis, own time.Duration
	calls      map[string]stats
	total      int64
}

// stats are those of a command, and of what scripts call.
type stats struct{ calls, micros int64 }

var statLine = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+),usec=(\d+)`)

func used(ctx context.Context, client *redis.Client) (u usage, err error) {
	u.at, u.calls = time.Now(), make(map[string]stats)
	if u.redis, err = benchmark.RedisCPU(ctx, client); err != nil {
		return u, err
	}
	var own syscall.Rusage // without the children, of which Redis is one
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, err
	}
	u.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	text, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return u, err
	}
	for _, m := range statLine.FindAllStringSubmatch(text, -1) {
		var s stats
		var errs [2]error
		s.calls, errs[0] = strconv.ParseInt(m[2], 10, 64)
		s.micros, errs[1] = strconv.ParseInt(m[3], 10, 64)
		if err := errors.Join(errs[:]...); err != nil {
			return u, err
		}
		u.calls[m[1]] = s
		switch m[1] {
		case "evalsha", "eval", "xread": // scripts make all other calls
			u.total += s.calls
		}
	}
	return u, nil
}

// measure starts readers with a Redis of their own, and has them create orders.
func measure(ctx context.Context, bed *testbed.Bed, s settings, c load, progress io.Writer) (sample benchmark.Sample, err error) {
	server, err := bed.Redis(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	rs, err := start(ctx, server.Addr(), c.readers, s.window)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rs.close()) }()
	if _, err := rs.create(ctx, c.rate, s.length/4); err != nil { // to warm up
		return nil, err
	}
	before, err := used(ctx, client)
	if err != nil {
		return nil, err
	}
	seen := make(chan watched)
	watching, stop := context.WithCancel(ctx)
	go func() { seen <- rs.watch(watching, client) }()
	all, err := rs.create(ctx, c.rate, s.length)
	stop()
	w := <-seen
	if err != nil {
		return nil, err
	}
	after, err := used(ctx, client)
	if err != nil {
		return nil, err
	}
	if s.commands {
		writeCommands(progress, c, before, after)
	}
	took := after.at.Sub(before.at).Seconds()
	sample = benchmark.Sample{
		ping:      w.ping,
		appendP50: quantile(all.appended, 0.5),
		p50:       quantile(all.spread, 0.5),
		p99:       quantile(all.spread, 0.99),
		certain:   w.certain,
		redisCPU:  100 * (after.redis - before.redis).Seconds() / took,
		ownCPU:    100 * (after.own - before.own).Seconds() / took,
		calls:     float64(after.total-before.total) / took,
	}
	sample[trips] = (sample[p50] - sample[appendP50]) / max(sample[ping], 0.001)
	return sample, nil
}

// watched is what was seen of readers while they worked.
type watched struct{ ping, certain float64 }

// watch looks at windows, and sends PING, until ctx ends.
func (rs *readers) watch(ctx context.Context, client *redis.Client) (w watched) {
	var pings []time.Duration
	var held, looked int
	for pause(ctx, 5*time.Millisecond) == nil {
		held, looked = held+rs.holding(), looked+len(rs.all)
		began := time.Now()
		if client.Ping(ctx).Err() == nil {
			pings = append(pings, time.Since(began))
		}
	}
	return watched{quantile(pings, 0.5), 100 * float64(held) / float64(max(1, looked))}
}

// created is how long creates took: until they were acknowledged, and until clients could be told of them.
type created struct{ appended, spread []time.Duration }

// create appends orders at a rate, each at its time, however long those before it take.
func (rs *readers) create(ctx context.Context, rate int, length time.Duration) (c created, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for n := range int(length.Seconds() * float64(rate)) {
		at := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
		if err := pause(ctx, time.Until(at)); err != nil {
			break
		}
		log := rs.all[n%min(creators, len(rs.all))].log
		all.Go(func() {
			at := time.Now() // the generator may be late by a millisecond
			failed := log.Append(ctx, fmt.Sprintf("%d-%d", began.UnixNano(), n))
			appended := time.Since(at)
			if failed == nil {
				failed = log.WaitForPeers(ctx)
			}
			took := time.Since(at)
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, failed)
			c.appended, c.spread = append(c.appended, appended), append(c.spread, took)
		})
	}
	all.Wait()
	return c, errors.Join(err, context.Cause(ctx))
}

// quantile returns one in ms, 0 of nothing.
func quantile(of []time.Duration, share float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return benchmark.Micros(of[min(len(of)-1, int(share*float64(len(of))))]) / 1000
}

// writeCommands writes what Redis spent on each command, the dearest first. A script's time has that
// of what it calls.
func writeCommands(w io.Writer, c load, before, after usage) {
	took := after.at.Sub(before.at).Seconds()
	var names []string
	each := make(map[string]stats)
	for name, s := range after.calls {
		b := before.calls[name]
		if s.calls -= b.calls; s.calls == 0 {
			continue
		}
		s.micros -= b.micros
		names, each[name] = append(names, name), s
	}
	slices.SortFunc(names, func(a, b string) int { return int(each[b].micros - each[a].micros) })
	var out strings.Builder
	fmt.Fprintf(&out, "%v\n", c)
	for _, name := range names {
		s := each[name]
		fmt.Fprintf(&out, "%16s %8.0f/s %8.2f µs %6.2f%% of a core\n", name, float64(s.calls)/took, float64(s.micros)/float64(s.calls), float64(s.micros)/1e4/took)
	}
	_, _ = io.WriteString(w, out.String()) // beside the report
}

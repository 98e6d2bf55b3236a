// Command trim measures what a change log without a table costs in the long run, when it
// is trimmed up to a snapshot in Redis: the memory of Redis for an ID, and the CPU of an
// ordergate that starts. Run it with "go run ./tests/bench/trim".
//
// IDs are appended as fast as it goes while one ordergate runs, which writes the snapshots
// and trims. Then another starts, at another place. It fails on errors and on an order
// that is absent, never on a figure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// settings are the command's flags.
type settings struct {
	ids      int
	capacity int
	markdown bool
}

func main() { os.Exit(benchmark.Main("trim", run)) }

// run measures, and writes the table to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	out := benchmark.NewReport(stdout, s.markdown, "##")
	out.Printf(introText, s.ids, s.capacity, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	err = benchmark.OnBed(func(bed *testbed.Bed) error {
		f, err := measure(ctx, bed, s, stderr)
		if err == nil {
			out.Table(f.table(s))
		}
		return err
	})
	return errors.Join(err, out.Err())
}

const introText = `%d IDs of 19 bytes in a filter for %d. Redis and the ordergates share
%d CPUs (%s/%s, load average %s at the start).

`

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("trim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.ids, "ids", 10_000_000, "how many IDs are appended")
	flags.IntVar(&s.capacity, "capacity", 0, "of the filter; 0: as many as there are IDs")
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.capacity == 0 {
		s.capacity = s.ids
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.ids < 1000 || s.ids > 1_000_000_000:
		return s, fmt.Errorf("-ids %d: use 1000 to 1000000000", s.ids)
	case s.capacity < 1:
		return s, fmt.Errorf("-capacity %d: use 1 or more", s.capacity)
	}
	return s, nil
}

// figures are what was measured.
type figures struct {
	redis, peak int64 // bytes, above those of an empty one
	entries     int64 // that the log has
	cpu, took   time.Duration
	redisCPU    time.Duration // of the start
}

func (f figures) table(s settings) benchmark.Table {
	each := func(bytes int64) string { return fmt.Sprintf("%.2f", float64(bytes)/float64(s.ids)) }
	const larger = 100_000_000
	scale := float64(larger) / float64(s.ids)
	seconds := func(d time.Duration, by float64) string { return fmt.Sprintf("%.2f", d.Seconds()*by) }
	return benchmark.Table{
		Title:  "A log that is trimmed",
		Note:   "The row of 10^8 is computed: all that a start does grows with the IDs.",
		Header: []string{"IDs", "bytes of Redis an ID", "at most", "entries left", "CPU of a start, s", "of Redis", "until it is certain, s"},
		Rows: [][]string{
			{strconv.Itoa(s.ids), each(f.redis), each(f.peak), strconv.FormatInt(f.entries, 10), seconds(f.cpu, 1), seconds(f.redisCPU, 1), seconds(f.took, 1)},
			{strconv.Itoa(larger), each(f.redis), each(f.peak), "", seconds(f.cpu, scale), seconds(f.redisCPU, scale), seconds(f.took, scale)},
		},
	}
}

// name returns the n-th ID.
func name(n int) string { return fmt.Sprintf("1%018d", n) }

const (
	appended = 1000 // at once
	// trimmed is how long it may take until the log is trimmed for the last time.
	trimmed = 2 * time.Minute
)

func measure(ctx context.Context, bed *testbed.Bed, s settings, progress io.Writer) (f figures, err error) {
	binary, err := bed.Build(ctx, "./cmd/sidecar", false)
	if err != nil {
		return f, err
	}
	server, err := bed.Redis(ctx)
	if err != nil {
		return f, err
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if _, err := gate(ctx, bed, binary, server.Addr(), "first", s); err != nil {
		return f, err
	}
	log, err := changelog.New(client, "orders", func(string) {}, changelog.Options{})
	if err != nil {
		return f, err
	}
	empty, err := memory(ctx, client, "used_memory")
	if err != nil {
		return f, err
	}
	ids := make([]string, appended)
	for n := 0; n < s.ids; n += appended {
		for i := range ids {
			ids[i] = name(n + i)
		}
		if err := log.Append(ctx, ids[:min(appended, s.ids-n)]...); err != nil {
			return f, err
		}
		if n%1_000_000 == 0 {
			fmt.Fprintf(progress, "%d IDs are appended\n", n)
		}
	}
	if f.entries, err = settled(ctx, client); err != nil {
		return f, err
	}
	if f.redis, err = memory(ctx, client, "used_memory"); err != nil {
		return f, err
	}
	if f.peak, err = memory(ctx, client, "used_memory_peak"); err != nil {
		return f, err
	}
	f.redis, f.peak = f.redis-empty, f.peak-empty
	before, err := benchmark.RedisCPU(ctx, client)
	if err != nil {
		return f, err
	}
	began := time.Now()
	second, err := gate(ctx, bed, binary, server.Addr(), "second", s)
	if err != nil {
		return f, err
	}
	if err := certain(ctx, second, s); err != nil {
		return f, err
	}
	f.took = time.Since(began)
	if f.cpu, err = benchmark.ProcessCPU(second.PID()); err != nil {
		return f, err
	}
	after, err := benchmark.RedisCPU(ctx, client)
	f.redisCPU = after - before
	return f, err
}

func gate(ctx context.Context, bed *testbed.Bed, binary, addr, member string, s settings) (*testbed.Gate, error) {
	return bed.Gate(ctx, binary, fmt.Sprintf(`
listen: {authz: "", proc: "", http: 127.0.0.1:0, admin: 127.0.0.1:0}
redis: {addresses: [%s], member: %s}
filters: {orders: {capacity: %d}}
rules: [{name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id}, lookup: {filter: orders}}]
`, addr, member, s.capacity))
}

// settled waits until the log is trimmed no more, and returns how many entries it has.
func settled(ctx context.Context, client *redis.Client) (entries int64, err error) {
	for deadline := time.Now().Add(trimmed); time.Now().Before(deadline); {
		before := entries
		// Each looks every ten seconds whether something is to be done.
		select {
		case <-time.After(21 * time.Second):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		if entries, err = client.XLen(ctx, "ordergate:{orders}:log").Result(); err != nil || entries == before {
			return entries, err
		}
	}
	return entries, errors.New("the log was trimmed all the time")
}

// certain asks until an order that does not exist is absent, and then for some that do.
func certain(ctx context.Context, g *testbed.Gate, s settings) error {
	addr, err := g.Addr(ctx, "http")
	if err != nil {
		return err
	}
	ask := func(id string) (string, error) {
		resp, err := http.Get("http://" + addr + "/check/envoy/orders/" + id)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		return resp.Header.Get("x-ordergate-verdict"), nil
	}
	for n := 0; ; n++ {
		verdict, err := ask(fmt.Sprintf("2%018d", n)) // one of a thousand passes
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if verdict == "absent" {
			break
		}
		if verdict == "invalid" {
			return errors.New("the IDs are malformed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for n := 0; n < s.ids; n += max(s.ids/1000, 1) {
		if verdict, err := ask(name(n)); err != nil || verdict == "absent" || verdict == "invalid" {
			return errors.Join(err, fmt.Errorf("order %s is %s", name(n), verdict))
		}
	}
	return nil
}

// memory returns a number of bytes that Redis tells of its memory.
func memory(ctx context.Context, client *redis.Client, field string) (int64, error) {
	text, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "\n"+field+":")
	number, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseInt(number, 10, 64)
}

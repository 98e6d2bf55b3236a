package tests

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// filterKind is a filter as a deployment may have it. Its rules are at /<name> and
// /<name>/{id}.
type filterKind struct {
	name     string
	settings string // separated by semicolons
	capacity int    // 0: many more than there are orders
	dated    bool   // its IDs tell their day
	arrival  bool   // it reads nothing: orders are known by their creation only
}

const (
	byDay     = "segments: {by: day, keep: 3, from: id}"
	byArrival = "segments: {by: day, keep: 3, from: arrival, older: absent}"
)

// inMemory need no Redis but for the change log, inRedis do.
var (
	inMemory = []filterKind{
		{name: "local", settings: "kind: local"},
		{name: "exact", settings: "kind: exact"},
		{name: "days", settings: byDay, dated: true},
		{name: "arrival", settings: byArrival, arrival: true},
	}
	inRedis = []filterKind{
		{name: "bloom", settings: "kind: redis-bloom"},
		{name: "bitmap", settings: "kind: redis-bitmap; shards: 3"},
		{name: "redisson", settings: "kind: redisson"},
		{name: "layered", settings: "kind: layered"},
		{name: "layered-redisson", settings: "kind: layered; redis_kind: redisson"},
		{name: "bitmap-days", settings: "kind: redis-bitmap; " + byDay, dated: true},
		{name: "bitmap-arrival", settings: "kind: redis-bitmap; " + byArrival, arrival: true},
	}
)

// today is one day for all of a run, since it may be midnight in the middle of it.
var today = time.Now().UTC()

// id returns the order of a number: of one of the last three days, if it tells.
func (k filterKind) id(n int) string {
	if !k.dated {
		return strconv.Itoa(n)
	}
	return today.AddDate(0, 0, -(n%3)).Format("20060102") + fmt.Sprintf("000000%05d", n)
}

// existing is how many orders there are at the beginning.
const existing = 120

// source writes a file of those.
func (k filterKind) source(t testing.TB) string {
	t.Helper()
	var text strings.Builder
	for n := 1; n <= existing; n++ {
		fmt.Fprintln(&text, k.id(n))
	}
	path := filepath.Join(t.TempDir(), k.name+".csv")
	must(t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

// kindsYAML is a configuration with a filter of each of the kinds.
func kindsYAML(t testing.TB, redis string, kinds []filterKind) string {
	t.Helper()
	var filters, sources, rules strings.Builder
	for _, k := range kinds {
		capacity := cmp.Or(k.capacity, 3000)
		fmt.Fprintf(&filters, "  %s:\n    capacity: %d\n    %s\n", k.name, capacity, strings.ReplaceAll(k.settings, "; ", "\n    "))
		if !k.arrival {
			fmt.Fprintf(&filters, "    sources: [%s]\n", k.name)
			fmt.Fprintf(&sources, "  %s: {kind: csv, path: %s}\n", k.name, k.source(t))
		}
		format := "digits"
		if k.dated {
			format = "timestamped"
		}
		fmt.Fprintf(&rules, `
  - name: %[1]s-lookup
    match: {methods: [GET], path: "/%[1]s/{id}"}
    id: {path: id, format: %[2]s}
    lookup: {filter: %[1]s}
  - name: %[1]s-create
    match: {methods: [POST], path: /%[1]s}
    id: {format: %[2]s}
    create: {filter: %[1]s, learn: {response_json: orderId}}
`, k.name, format)
	}
	return "listen: {authz: 127.0.0.1:0, proc: 127.0.0.1:0, admin: 127.0.0.1:0}\n" +
		"redis:\n  " + redis + "\nfilters:\n" + filters.String() + "sources:\n" + sources.String() + "rules:" + rules.String()
}

// kindsStack is an ordergate with these filters behind an Envoy.
func kindsStack(t *testing.T, bed *bedtest.Bed, b *backend, redis *replicated, kinds []filterKind) *stack {
	t.Helper()
	s := &stack{Bed: bed, t: t, server: redis.nodes[0]}
	s.start(settings{
		backend: b.addr(),
		gate:    func(string) string { return kindsYAML(t, redis.section, kinds) },
		envoy:   unhurried(t), // a slow machine is no reason to let one pass
	})
	return s
}

func onSingle(bed *bedtest.Bed, args ...string) *replicated {
	server := bed.Redis(args...)
	return &replicated{section: "addresses: [" + server.Addr() + "]", nodes: []*testbed.Redis{server}}
}

// TestFiltersEndToEnd has every kind of filter tell which orders exist, with two
// ordergates on each kind of Redis, or with one that has a Redis inside.
func TestFiltersEndToEnd(t *testing.T) {
	t.Parallel()
	all := append(append([]filterKind(nil), inMemory...), inRedis...)
	for _, tt := range []struct {
		name  string
		redis func(*bedtest.Bed) *replicated
		kinds []filterKind
		gates int
	}{
		{"embedded", func(bed *bedtest.Bed) *replicated {
			r := onSingle(bed)
			r.section = "mode: embedded"
			return r
		}, inMemory, 1},
		{"single", func(bed *bedtest.Bed) *replicated { return onSingle(bed, bed.RedisBloomArgs()...) }, all, 2},
		{"cluster", func(bed *bedtest.Bed) *replicated { return onCluster(bed, bed.RedisBloomArgs()...) }, all, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "single" {
				needsSidecar(t, "one Redis or many, they lie behind the gate")
			}
			t.Parallel()
			b, bed := newBackend(t), bedtest.New(t)
			redis := tt.redis(bed)
			var gates []*stack
			for range tt.gates {
				gates = append(gates, kindsStack(t, bed, b, redis, tt.kinds))
			}
			for _, k := range tt.kinds {
				t.Run(k.name, func(t *testing.T) { k.test(t, gates) })
			}
		})
	}
}

// side is one of the ordergates, for one filter and test.
type side struct {
	*stack
	filterKind
}

func (k filterKind) sides(t *testing.T, gates []*stack) (sides []side) {
	for _, g := range gates {
		mine := *g
		mine.t = t
		sides = append(sides, side{&mine, k})
	}
	return sides
}

func (s side) get(n int) answer { return s.must(http.MethodGet, "/"+s.name+"/"+s.id(n), "") }

func (s side) create(n int) {
	s.t.Helper()
	if a := s.must(http.MethodPost, "/"+s.name+"?do=create&id="+s.id(n), ""); a.status != http.StatusCreated {
		s.t.Errorf("create of %s: %d %s", s.id(n), a.status, a.body)
	}
}

// refuses waits until all of some made-up orders are refused, but for one that the
// bits may let pass.
func (s side) refuses() {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s: %+v", s.name, s.info(s.name))
		}
	}()
	inTheEnd(s.t, s.name+" refuses what does not exist", func() bool {
		passed := 0
		for n := 50_000; n < 50_012; n++ {
			if s.get(n).status != http.StatusNotFound {
				passed++
			}
		}
		return passed < 4
	})
}

// passes reports whether a made-up order passes because of the bits: then it does so
// each time, while Redis may be slow, or an ordergate be cut off from it, for a while.
func (s side) passes(n int) bool {
	s.t.Helper()
	for range 3 {
		if a := s.get(n); a.status != http.StatusOK {
			a.want(s.t, http.StatusNotFound, "absent")
			return false
		}
		s.refuses()
	}
	return true
}

// inTheEnd is bedtest.Eventually for what may need a second try, which ordergate makes
// after half a minute.
func inTheEnd(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); {
		waited := time.Since(begin)
		if waited > 2*time.Minute {
			t.Fatalf("never happened: %s", what)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("the test ended before: %s", what)
		case <-time.After(bedtest.Pause(waited)):
		}
	}
}

// test looks for orders that exist and for some that do not, while others are made.
func (k filterKind) test(t *testing.T, gates []*stack) {
	sides := k.sides(t, gates)
	if k.arrival {
		for n := 1; n <= existing; n += 5 {
			sides[n%len(sides)].create(n)
		}
	}
	for n := 1; n <= existing; n += 5 {
		for _, s := range sides {
			s.get(n).want(t, http.StatusOK, "")
		}
	}
	passed := 0
	for i, s := range sides {
		s.refuses()
		for n := range 60 {
			if s.passes(60_000 + 1_000*i + n) {
				passed++
			}
		}
	}
	// At one in a thousand six of 120 are one in 3e9 runs; of Redisson's kind up to twice
	// as many pass, and six are one in 4e7.
	if passed > 5 || k.name == "exact" && passed > 0 {
		t.Errorf("%d of %d orders passed that do not exist", passed, 60*len(sides))
	}
	k.crowd(t, sides, 70_000)
}

// crowded is how many orders a crowd creates.
const (
	writers, each = 8, 5
	crowded       = writers * each
)

// crowd has eight create orders, from a number on, each of which is looked for on
// another side as soon as its creation was answered, and eight look for those that
// there are.
func (k filterKind) crowd(t *testing.T, sides []side, from int) {
	var mu sync.Mutex
	known := []int{1, 6, 11}
	done := make(chan struct{})
	var readers, creators sync.WaitGroup
	for range writers {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				n := known[rand.IntN(len(known))]
				mu.Unlock()
				s := sides[rand.IntN(len(sides))]
				if a := s.get(n); a.status != http.StatusOK {
					t.Errorf("order %s exists, and got %d %s", k.id(n), a.status, a.body)
					return
				}
				time.Sleep(25 * time.Millisecond) // leaves the processors to those who create
			}
		})
	}
	for w := range writers {
		creators.Go(func() {
			for i := range each {
				n := from + w*each + i
				sides[w%len(sides)].create(n)
				if a := sides[(w+1)%len(sides)].get(n); a.status != http.StatusOK {
					t.Errorf("order %s was created, and got %d %s elsewhere", k.id(n), a.status, a.body)
				}
				mu.Lock()
				known = append(known, n)
				mu.Unlock()
			}
		})
	}
	creators.Wait()
	close(done)
	readers.Wait()
}

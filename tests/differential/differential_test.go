// Package differential tests that a backend never takes a request for another
// order than ordergate does. Old services on Tomcat, Spring and PHP write down
// which order they saw; thousands of requests that are odd in every way known to
// fool one of two readers go to them through a real Envoy and ordergate.
//
// Start with [TestDifferential]. A run is repeated with -seed, or the variable
// SEED; SOAK=1 makes it a long one with more backends. Requests are made by
// [generate], from plain ones ([newDraft]) and [mutations].
package differential

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of the requests; 0 takes $SEED, or 1, or for a long run the time")
	// No rule can tell an unknown path below its own from another route, so this
	// is not what the test is about.
	prefixFlag = flag.Bool("prefix", false, "let the Tomcat and PHP services ignore what follows a route's path: it fails")
	sizeFlag   = flag.Int("size", 0, "requests for each backend; 0 takes 2000, or 12000 for a long run")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Requests for each backend. Some 1,500 to 1,800 have one mutation, the others combinations.
const (
	testSize = 2_000
	soakSize = 12_000
)

// connections is how many requests are under way for one backend.
const connections = 4

// maxShown bounds the classes that are printed.
const maxShown = 20

// TestDifferential sends odd requests to every backend.
func TestDifferential(t *testing.T) {
	soak := os.Getenv("SOAK") != ""
	size := cmp.Or(*sizeFlag, testSize)
	if soak {
		size = cmp.Or(*sizeFlag, soakSize)
	}
	seed := seed(t, soak)
	for _, b := range backends {
		if b.soak && !soak {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			run(t, b, seed, size)
		})
	}
}

// seed returns the seed that is asked for.
func seed(t *testing.T, soak bool) uint64 {
	seed := *seedFlag
	if text := os.Getenv("SEED"); seed == 0 && text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("reading SEED: %v", err)
		}
	}
	if seed == 0 && soak {
		seed = uint64(time.Now().UnixNano())
	}
	return cmp.Or(seed, 1)
}

// run sends the plain requests of each source, then the odd ones, and looks at
// what the backend saw.
func run(t *testing.T, b backend, seed uint64, size int) {
	bed := bedtest.New(t)
	file := filepath.Join(t.TempDir(), "sightings")
	templates := writeTemplates(t, seed, file)
	direct := b.run(t, bed.Root(), file)
	addr := newStack(t, bed, direct, b.front, size)

	known, unknown := plain(decoyEnd, b.front), plain(orderEnd, b.front)
	wantSeen(t, b, known, sendAll(t.Context(), addr, known, 1), readSightings(t, file))
	before := len(readSightings(t, file))
	wantAbsent(t, unknown, sendAll(t.Context(), addr, unknown, 1), readSightings(t, file)[before:])

	if b.front {
		wantPassed(t, harmless(), sendAll(t.Context(), addr, harmless(), 1))
	}

	requests := generate(seed, b.name, b.front, size)
	begin := time.Now()
	answers := sendAll(t.Context(), addr, requests, connections)
	took := time.Since(begin)
	// A backend writes before it answers, so all that it saw is in the file.
	seen := readSightings(t, file)

	sent := make(map[string]request)
	for _, r := range slices.Concat(known, unknown, requests) {
		sent[r.name] = r
	}
	hung := wantAnswers(t, requests, answers)
	broken := failures(seen, sent, size)
	classes := classify(broken)
	t.Logf("%s: seed %d, %d requests in %v: %s; the backend saw %d orders, %d of them wrongly (%d classes), %d requests hung",
		b.name, seed, size, took.Round(time.Millisecond), figures(answers), len(seen), len(broken), len(classes), hung)
	for i, c := range classes {
		if i == maxShown {
			t.Errorf("%s: and %d classes more", b.name, len(classes)-i)
			break
		}
		t.Errorf("%s: %v", b.name, c)
	}
	wantTemplates(t, b, seed, direct, file, templates)
}

// wantSeen checks that plain requests for orders that exist reach the backend,
// which takes them for what they are: else the rest proves nothing.
func wantSeen(t *testing.T, b backend, requests []request, answers []answer, seen []sighting) {
	t.Helper()
	for i, r := range requests {
		if answers[i].status != 200 {
			t.Errorf("%s: the plain request for %d is answered by %+v: %q", b.name, r.order, answers[i], r.raw)
			continue
		}
		what, key := "lookup", ""
		if r.settle {
			what, key = "settle", fmt.Sprintf("order:lock:%d", r.order)
		}
		if !slices.ContainsFunc(seen, func(s sighting) bool {
			return s.Case == r.name && s.What == what && s.Order == fmt.Sprint(r.order) && s.Key == key
		}) {
			t.Errorf("%s: the plain request for %d is not seen as such: %q", b.name, r.order, r.raw)
		}
	}
}

// wantAbsent checks that plain lookups of orders that do not exist are answered
// by ordergate, and that such an order can be settled all the same.
func wantAbsent(t *testing.T, requests []request, answers []answer, seen []sighting) {
	t.Helper()
	for i, r := range requests {
		arrived := slices.ContainsFunc(seen, func(s sighting) bool { return s.Case == r.name })
		switch {
		case r.settle && (answers[i].status != 200 || !arrived):
			t.Errorf("the plain settlement of %d is answered by %+v: %q", r.order, answers[i], r.raw)
		case !r.settle && (answers[i].verdict != "absent" || arrived):
			t.Errorf("the lookup of %d, which is absent, is answered by %+v: %q", r.order, answers[i], r.raw)
		}
	}
}

// wantPassed checks that what only looks odd reaches the backend.
func wantPassed(t *testing.T, requests []request, answers []answer) {
	t.Helper()
	for i, r := range requests {
		if answers[i].status != 200 {
			t.Errorf("a harmless request is answered by %+v: %q", answers[i], r.raw[:min(len(r.raw), 400)])
		}
	}
}

// wantAnswers checks that no request hung, and returns how many did.
func wantAnswers(t *testing.T, requests []request, answers []answer) (hung int) {
	t.Helper()
	for i, a := range answers {
		switch {
		case a.err != nil:
			t.Errorf("request %d could not be sent: %v", i, a.err)
			return hung
		case a.hung:
			if hung++; hung <= maxShown {
				t.Errorf("request %d was not answered within %v: %q", i, answerLimit, requests[i].raw)
			}
		}
	}
	return hung
}

// figures counts answers by status and verdict.
func figures(answers []answer) string {
	counts := make(map[string]int)
	for _, a := range answers {
		name := strings.TrimSpace(fmt.Sprint(a.status, " ", a.verdict))
		if a.status == 0 {
			name = "closed"
		}
		counts[name]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

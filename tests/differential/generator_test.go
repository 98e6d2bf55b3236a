package differential

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// request is one to send, and what is known of it.
type request struct {
	name      string // x-case
	raw       string
	method    string
	source    source
	settle    bool
	order     int64
	mutations []string // none: it is the plain request of its source
	alone     bool
	http2     *http.Request // it goes over HTTP/2, without a host; nil: raw goes over HTTP/1
}

// Every request has an order and a decoy of its own, so that none waits for
// another's lock: 42 and 43, 142 and 143, and so on. The decoys are what the
// filter knows: only requests that aim at them may be lookups that arrive.
const (
	orderEnd = 42
	decoyEnd = 43
	apart    = 100
)

// present reports whether an order is one of the first n decoys.
func present(order int64, n int) bool {
	return order%apart == decoyEnd && order > 0 && order < int64(n)*apart
}

// generate makes size requests for a backend: each class of mutation once on each route
// where it fits, twice in a long run, since most have variants; then combinations of two
// and three. The same seed, backend and size make the same requests.
func generate(seed uint64, backend string, front bool, size int) []request {
	hash := fnv.New64a()
	hash.Write([]byte(backend))
	g := &generator{rand: rand.New(rand.NewPCG(seed, hash.Sum64()))}
	all, sources := mutations(), sourcesOf(front)
	for _, s := range sources {
		for _, settle := range []bool{true, false} {
			if !isServed(s, settle, front) {
				continue
			}
			for _, m := range all {
				for range min(2, 1+size/soakSize) {
					g.add(s, settle, []mutation{m})
				}
			}
		}
	}
	for len(g.requests) < size {
		chosen := []mutation{pick(g.rand, all...), pick(g.rand, all...)}
		if g.rand.IntN(3) == 0 {
			chosen = append(chosen, pick(g.rand, all...))
		}
		if s, settle := pick(g.rand, sources...), g.rand.IntN(3) > 0; isServed(s, settle, front) {
			g.add(s, settle, chosen)
		}
	}
	g.rand.Shuffle(len(g.requests), func(i, j int) {
		g.requests[i], g.requests[j] = g.requests[j], g.requests[i]
	})
	return g.requests[:size]
}

// plain makes the plain requests of every source, in every way, for a number
// that the filter knows or one that it does not.
func plain(end int64, front bool) []request {
	g := &generator{rand: rand.New(rand.NewPCG(1, uint64(end)))}
	for _, s := range sourcesOf(front) {
		for _, settle := range []bool{true, false} {
			if !isServed(s, settle, front) {
				continue
			}
			for i, way := range ways[s] {
				d := newDraft(g.rand, s, settle, int64(i*apart)+end, int64(i*apart)+decoyEnd, way)
				d.place()
				if s == inJSON { // the other spelling of two is a mutation
					d.body = `{"orderId":` + d.number() + `}`
				}
				g.keep(fmt.Sprintf("plain-%d-%d", end, len(g.requests)), d, nil)
			}
		}
	}
	return g.requests
}

type generator struct {
	rand     *rand.Rand
	requests []request
}

// add makes a request, unless none of the mutations fits it.
func (g *generator) add(s source, settle bool, chosen []mutation) {
	k := int64(len(g.requests)) * apart
	d := newDraft(g.rand, s, settle, k+orderEnd, k+decoyEnd, pick(g.rand, ways[s]...))
	if names := apply(d, chosen); len(names) > 0 {
		g.keep(fmt.Sprint(len(g.requests)), d, names)
	}
}

func (g *generator) keep(name string, d *draft, names []string) {
	r := request{
		name: name, raw: d.bytes(name), method: d.method, source: d.source, settle: d.settle,
		order: d.order, mutations: names, alone: d.alone || d.broken(),
	}
	if d.version == overHTTP2 {
		r.http2 = inHTTP2(r.raw)
	}
	g.requests = append(g.requests, r)
}

// broken reports whether a line end in a line may make the server see the end
// of the request elsewhere.
func (d *draft) broken() bool {
	lines := slices.Concat(d.headers, d.cookies, d.contentTypes, d.query, []string{d.path})
	return strings.ContainsAny(strings.Join(lines, ""), "\r\n\x00")
}

// TestGenerate checks that a seed repeats its requests, that each class is
// there, and that none is the plain request under another name.
func TestGenerate(t *testing.T) {
	const size = testSize
	got := generate(7, "fpm", true, size)
	again := generate(7, "fpm", true, size)
	other := generate(8, "fpm", true, size)
	differ := 0
	seen := map[string]bool{}
	for i, r := range got {
		if r.raw != again[i].raw {
			t.Fatalf("request %d of seed 7 is %q, then %q", i, r.raw, again[i].raw)
		}
		if r.raw != other[i].raw {
			differ++
		}
		for _, name := range r.mutations {
			seen[name] = true
		}
		if len(r.mutations) == 0 {
			t.Errorf("request %d has no mutation: %q", i, r.raw)
		}
	}
	if differ < size/2 {
		t.Errorf("of %d requests only %d differ between two seeds", size, differ)
	}
	for _, m := range mutations() {
		if !seen[m.name] {
			t.Errorf("no request has the mutation %q", m.name)
		}
	}
}

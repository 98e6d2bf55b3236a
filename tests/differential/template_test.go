package differential

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	templateCount = 24
	// templateSpellings is the number of requests for each template.
	templateSpellings = 40
	// templatesSuffix follows the name of the sightings' file, in which backends find the templates.
	templatesSuffix = ".templates"
	// anyCase marks a sighting by a router that ignores case, which only the strict profile has.
	anyCase = "any case"
)

// templates generates paths of routes, none of which is one of the backends' other routes in any
// case. Literal ones come first, as rules have to.
func templates(r *rand.Rand) []string {
	words := []string{"order", "view", "paySuccess", "Sales", "CANCEL", "order_view", "pay-now", "v2", "2024", "~shop", "a.b", "tasks", "größe", "Ébène", "заказ"}
	var literal, variable []string
	for len(literal)+len(variable) < templateCount {
		path := ""
		if all := slices.Concat(literal, variable); len(all) > 0 && r.IntN(4) == 0 {
			path = pick(r, all...) // the prefix of the new one
		}
		for range 1 + r.IntN(2) {
			path += "/" + pick(r, words...)
		}
		switch r.IntN(6) {
		case 0, 1:
			path += pick(r, ".do", ".html", ".json", ".Action", ".php", ".v1.do")
		case 2, 3:
			if !strings.Contains(path, "{") {
				path += "/{id}" + pick(r, "", "", "/confirm", "/pay.do", "/Pay_now")
			}
		}
		switch {
		case len(path) > 80, slices.Contains(literal, path), slices.Contains(variable, path):
		case strings.Contains(path, "{"):
			variable = append(variable, path)
		default:
			literal = append(literal, path)
		}
	}
	return append(literal, variable...)
}

// writeTemplates gives a backend its templates, which it reads when it starts.
func writeTemplates(t *testing.T, seed uint64, sightings string) []string {
	all := templates(rand.New(rand.NewPCG(seed, 4)))
	bedtest.Check(t, os.WriteFile(sightings+templatesSuffix, []byte(strings.Join(all, "\n")), 0o644)) //nolint:gosec // Apache reads it as another user
	return all
}

// respell returns the path of a template, spelt otherwise by one or two of the path's mutations.
func respell(r *rand.Rand, template string, all []mutation) string {
	d := &draft{rand: r, source: "template", order: orderEnd, decoy: decoyEnd}
	d.path = escapeUnless(strings.ReplaceAll(template, "{id}", d.number()), "/-._~")
	for range 1 + r.IntN(2) {
		at := 1 + r.IntN(len(d.path)-1)
		switch p := d.path; r.IntN(8) {
		case 0: // any byte, not only a letter
			if p[at] != '%' && p[max(0, at-1)] != '%' && p[max(0, at-2)] != '%' {
				d.path = p[:at] + fmt.Sprintf(pick(r, "%%%02x", "%%%02X", "%%25%02x"), p[at]) + p[at+1:]
			}
		case 1:
			d.path = pick(r, strings.ToLower, strings.ToUpper)(p)
		case 2: // the escapes alone
			if i := strings.IndexByte(p, '%'); i >= 0 && i+2 < len(p) {
				d.path = p[:i] + strings.ToLower(p[i:i+3]) + p[i+3:]
			}
		case 3: // after the last name
			d.path += pick(r, ".", ".do", ".json", "%00", "%00.html", "%20", "%0a", ";", ";a=b", "/", "//", "%2f", "/.", "%3Bx", "%3fx", "%23")
		default:
			if m := pick(r, all...); m.fits(d) {
				m.apply(d)
			}
		}
	}
	return d.path
}

// wantTemplates sends the paths of the templates to a backend without ordergate, each in many
// spellings. For a spelling that reaches a template's handler, the rule of the template has to
// match, or a rule has to refuse the request.
func wantTemplates(t *testing.T, b backend, seed uint64, addr, file string, all []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	var requests []request
	targets := map[string]string{}
	add := func(path string) {
		if strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
			return // no request line can have it
		}
		d := &draft{method: "POST", path: path, query: []string{"orderId=42"}, version: "HTTP/1.1"}
		name := fmt.Sprintf("template-%d", len(requests))
		targets[name] = path + "?orderId=42"
		requests = append(requests, request{name: name, raw: d.bytes(name), method: d.method})
	}
	mutations := slices.DeleteFunc(pathMutations(), func(m mutation) bool { return !m.fits(&draft{source: "template", path: "/x"}) })
	for _, template := range all {
		add(escapeUnless(strings.ReplaceAll(template, "{id}", "42"), "/-._~"))
		for range templateSpellings {
			add(respell(r, template, mutations))
		}
	}
	sendAll(t.Context(), addr, requests, connections)

	tables := map[string]*order.Table{"strict": templateTable(t, all, order.Strict)}
	if b.profile != order.Strict {
		tables["its own profile"] = templateTable(t, all, b.profile)
	}
	reached, routed, wrong := map[int]bool{}, 0, 0
	for _, s := range readSightings(t, file) {
		target, ok := targets[s.Case]
		if !ok || !strings.HasPrefix(s.Via, "template") {
			continue
		}
		routed++
		n, err := strconv.Atoi(s.Order)
		bedtest.Check(t, err)
		reached[n-1] = true
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			if name != "strict" && strings.HasSuffix(s.Via, anyCase) {
				continue
			}
			m := tables[name].Match(order.Request{Method: "POST", Target: target, BodyState: order.BodyComplete})
			if m.Result != order.Unruled && (m.Result != order.Named || m.Rule == n-1) {
				continue
			}
			if wrong++; wrong <= maxShown {
				t.Errorf("%s takes %q for %s (%s), and %s has %+v", b.name, target, all[n-1], s.Via, name, m)
			}
		}
	}
	t.Logf("%s: %d of %d requests reached %d templates, %d of them unguarded", b.name, routed, len(requests), len(reached), wrong)
	if len(reached) < len(all) {
		t.Errorf("%s: only %d of %d templates were reached", b.name, len(reached), len(all))
	}
}

// templateTable has a rule for each template.
func templateTable(t *testing.T, all []string, profile order.Backend) *order.Table {
	var rules []order.Rule
	for _, template := range all {
		id := order.ID{In: order.InQuery, Name: "orderId", Format: order.Format{Kind: order.Digits, Min: 1, Max: 19}}
		if strings.Contains(template, "{id}") {
			id.In, id.Name = order.InPath, "id"
		}
		rules = append(rules, order.Rule{Name: template, Methods: []string{"POST"}, Path: template, IDs: []order.ID{id}, Backend: profile})
	}
	table, err := order.NewTable(rules)
	bedtest.Check(t, err)
	return table
}

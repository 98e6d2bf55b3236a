package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestAttachmentsAgree sends the same odd requests through an Envoy with ordergate beside it
// and through one with ordergate inside. Both decide alike, and the backend sees the same.
func TestAttachmentsAgree(t *testing.T) {
	const size = 1_900 // each class once, and some combinations
	soak := os.Getenv("SOAK") != ""
	for _, b := range backends {
		if !soak && b.name != "tomcat" && b.name != "fpm" { // what the others see depends on the same verdicts
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			library := bed.Module() // or there is nothing to compare
			file := filepath.Join(t.TempDir(), "sightings")
			backend := b.run(t, bed.Root(), file)
			simple := slices.Concat(plain(decoyEnd, b.front), plain(orderEnd, b.front)) // of the same orders, so one by one
			requests := slices.Concat(simple, generate(seed(t, soak), b.name, b.front, size))
			addrs := map[string]string{
				"sidecar": newStack(t, bed, backend, b.front, size),
				"module":  newModule(t, bed, library, backend, b.front, size, rules(b.front)),
			}
			answers, seen := make(map[string][]answer), make(map[string]map[string][]string)
			for by, addr := range addrs {
				var own []request
				for _, r := range requests {
					own = append(own, r.called(by+" "+r.name))
				}
				answers[by] = append(sendAll(t.Context(), addr, own[:len(simple)], 1), sendAll(t.Context(), addr, own[len(simple):], connections)...)
				wantAnswers(t, own, answers[by])
				seen[by] = make(map[string][]string)
			}
			for _, s := range readSightings(t, file) {
				by, name, _ := strings.Cut(s.Case, " ")
				if seen[by] == nil {
					t.Fatalf("the backend saw %+v", s)
				}
				seen[by][name] = append(seen[by][name], fmt.Sprint(s.What, " ", s.Order, " under ", s.Key))
			}
			differ := 0
			for i, r := range requests {
				describe := func(by string) string {
					a, orders := answers[by][i], seen[by][r.name]
					if slices.Sort(orders); a.status != 200 && a.verdict == "" && len(orders) == 0 {
						return "refused by Envoy" // some it answers, and closes the connection before that is read
					}
					if !b.front && a.status == 400 && a.verdict != "" {
						return "refused" // of two reasons the first counts, and ext_authz sees the body at once
					}
					return fmt.Sprintf("%d %q, the backend saw %q", a.status, a.verdict, orders)
				}
				sidecar, module := describe("sidecar"), describe("module")
				if len(r.raw) > shown && answers["sidecar"][i].status == 413 && answers["module"][i].verdict != "" {
					continue // Envoy has refused to show so much, before ordergate could say why it does
				}
				if sidecar != module {
					if differ++; differ <= maxShown {
						t.Errorf("%s, %s\n\tsidecar: %s\n\tmodule: %s\n\t%.500q", r.source, strings.Join(r.mutations, " + "), sidecar, module, r.raw)
					}
				}
			}
			t.Logf("%s: %d requests: %s; %d differ", b.name, len(requests), figures(answers["module"]), differ)
		})
	}
}

// called returns the request under another name.
func (r request) called(name string) request {
	r.raw = strings.Replace(r.raw, "\r\nx-case: "+r.name+"\r\n", "\r\nx-case: "+name+"\r\n", 1)
	r.name = name
	if r.http2 != nil {
		r.http2 = inHTTP2(r.raw)
	}
	return r
}

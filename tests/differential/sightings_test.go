package differential

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sighting is one order that a backend took a request for. A backend that looks
// in several ways writes one for each that finds an order.
type sighting struct {
	Case    string
	Backend string
	What    string // "settle" or "lookup"
	Order   string // the number as it would go into a query
	Key     string // of the x-ordergate-key that came along
	Via     string // the way
}

func readSightings(t *testing.T, path string) []sighting {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil // it took no request for any order
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []sighting
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s sighting
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("reading what %s saw: %v: %q", path, err, lines.Text())
		}
		all = append(all, s)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// fault says how a sighting breaks the guarantee, "" when it does not. The
// filter knows the first n decoys.
func (s sighting) fault(n int) string {
	if s.What == "settle" {
		switch s.Key {
		case "order:lock:" + s.Order:
			return ""
		case "":
			return "settled without a lock"
		default:
			return "settled under another order's lock"
		}
	}
	if order, err := strconv.ParseInt(s.Order, 10, 64); err != nil || !present(order, n) {
		return "looked up although absent"
	}
	return ""
}

// failure is a sighting with a fault, and the request that led to it.
type failure struct {
	sighting
	request
	fault string
}

// failures finds the sightings with a fault, those of the simplest requests
// first.
func failures(seen []sighting, sent map[string]request, n int) []failure {
	var all []failure
	for _, s := range seen {
		if fault := s.fault(n); fault != "" {
			all = append(all, failure{s, sent[s.Case], fault})
		}
	}
	slices.SortStableFunc(all, func(a, b failure) int { return len(a.mutations) - len(b.mutations) })
	return all
}

// class is a kind of failure: what happened to a backend's route, by which
// mutations. One whose mutations include those of another is counted there.
type class struct {
	example failure
	count   int
}

// classify groups failures that are sorted by their number of mutations.
func classify(all []failure) []*class {
	var classes []*class
	for _, f := range all {
		i := slices.IndexFunc(classes, func(c *class) bool { return c.covers(f) })
		if i < 0 {
			i = len(classes)
			classes = append(classes, &class{example: f})
		}
		classes[i].count++
	}
	return classes
}

func (c *class) covers(f failure) bool {
	e := c.example
	if e.fault != f.fault || e.source != f.source {
		return false
	}
	for _, m := range e.mutations {
		if !slices.Contains(f.mutations, m) {
			return false
		}
	}
	return true
}

// String shows the class by its example, with the request so that Go can read it
// back.
func (c *class) String() string {
	f := c.example
	raw := f.raw
	if len(raw) > 2000 {
		raw = raw[:1000] + "[...]" + raw[len(raw)-1000:]
	}
	return fmt.Sprintf("%s, %s: %s (%d times)\n\tthe backend saw order %s (%s, %s), key %q\n\t%s",
		f.source, strings.Join(f.mutations, " + "), f.fault, c.count, f.Order, f.What, f.Via, f.Key, strconv.Quote(raw))
}

// TestFault checks the judgement itself.
func TestFault(t *testing.T) {
	for _, c := range []struct {
		name string
		s    sighting
		want string
	}{
		{"settled under its lock", sighting{What: "settle", Order: "42", Key: "order:lock:42"}, ""},
		{"no lock", sighting{What: "settle", Order: "42"}, "settled without a lock"},
		{"another lock", sighting{What: "settle", Order: "42", Key: "order:lock:43"}, "settled under another order's lock"},
		{"another spelling", sighting{What: "settle", Order: "042", Key: "order:lock:42"}, "settled under another order's lock"},
		{"absent", sighting{What: "lookup", Order: "42"}, "looked up although absent"},
		{"present", sighting{What: "lookup", Order: "143"}, ""},
		{"present with a zero", sighting{What: "lookup", Order: "x143"}, "looked up although absent"},
		{"past those present", sighting{What: "lookup", Order: "243"}, "looked up although absent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.s.fault(2); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

package loader

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
)

// TestTablePlace gives the place of one table to another.
func TestTablePlace(t *testing.T) {
	good := config.Source{
		Kind: config.SourceMySQL, DSN: "u:hush@tcp(h:3306)/d", Table: "orders", IDColumn: "id", CursorColumn: "id",
		Overlap: time.Minute, OnBad: config.OnBadFail,
	}
	source := func(change func(*config.Source)) *tableSource {
		c := good
		if change != nil {
			change(&c)
		}
		s, err := newTableSource("db", c, nil, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const mark = `{"floor":{"of":"orders","cursor":"7"}}`
	s := source(nil)
	place := json.RawMessage(`{"of":"` + s.identity + `","mark":` + mark + `}`)
	if err := s.from(place); err != nil || string(s.position()) != string(place) {
		t.Fatalf("%s, %v; want %s", s.position(), err, place)
	}
	if strings.ContainsAny(s.identity, "@(:") {
		t.Errorf("the identity %s says where the database is", s.identity)
	}
	for name, tc := range map[string]struct {
		change func(*config.Source)
		same   bool
	}{
		"password":  {func(c *config.Source) { c.DSN = "u:other@tcp(h:3306)/d" }, true},
		"how fast":  {func(c *config.Source) { c.Batch, c.MaxRate, c.Pause = 7, 7, 7 }, true},
		"server":    {func(c *config.Source) { c.DSN = "u:hush@tcp(i:3306)/d" }, false},
		"database":  {func(c *config.Source) { c.DSN = "u:hush@tcp(h:3306)/e" }, false},
		"kind":      {func(c *config.Source) { c.Kind, c.DSN = config.SourcePostgres, "postgres://u@h:3306/d" }, false},
		"table":     {func(c *config.Source) { c.Table = "others" }, false},
		"column":    {func(c *config.Source) { c.IDColumn = "order_id" }, false},
		"cursor":    {func(c *config.Source) { c.CursorColumn = "order_id" }, false},
		"bad rows":  {func(c *config.Source) { c.OnBad = config.OnBadSkip }, false},
		"ascending": {func(c *config.Source) { c.Ascending = true }, false},
		"overlap":   {func(c *config.Source) { c.Overlap++ }, false},
	} {
		other := source(tc.change)
		err := other.from(place)
		if tc.same && (err != nil || other.reached().Zero()) || !tc.same && (!errors.Is(err, errMoved) || !other.reached().Zero()) {
			t.Errorf("another %s: %v, mark %+v", name, err, other.reached())
		}
		before, _ := s.fingerprint(time.Now())
		if now, ok := other.fingerprint(time.Now()); !ok || (now == before) != tc.same {
			t.Errorf("another %s: stamp %s, before %s", name, now, before)
		}
	}
	for _, place := range []string{mark, `{"of":"","mark":` + mark + `}`} {
		if err := s.from(json.RawMessage(place)); !errors.Is(err, errMoved) {
			t.Errorf("%s: %v", place, err)
		}
	}
	if err := s.from(json.RawMessage("7")); err == nil || errors.Is(err, errMoved) {
		t.Errorf("no place: %v", err)
	}
	if err := s.from(nil); err != nil || !s.reached().Zero() {
		t.Errorf("nothing: %v, mark %+v", err, s.reached())
	}
}

package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestPlace writes a place beside a set that may be another one than when it was read.
func TestPlace(t *testing.T) {
	bed := bedtest.New(t)
	server := bed.Redis("--appendonly", "yes")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	set, err := redisset.New(client, redisset.Options{Name: "orders", Bits: redisbf.Options{Kind: redisbf.Bitmap, Key: "order:bloom:orders", Capacity: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	const old, written, others = `{"floor":{"cursor":"1"}}`, `{"floor":{"cursor":"2"}}`, `{"floor":{"cursor":"3"}}`
	p := &checkpointStore{client: client, keys: []string{"ordergate:{orders}:places", redisset.StateKey("orders")}, set: set, tables: []*tableSource{{name: "db", identity: "db"}}}
	put := func(mark string) {
		t.Helper()
		at, err := p.readAny(t.Context(), p.tables[0])
		if err == nil {
			err = p.write(t.Context(), p.tables[0], at, json.RawMessage(mark))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name      string
		meanwhile func(t *testing.T) error
		want      string
	}{
		{"nothing", func(*testing.T) error { return nil }, written},
		{"another was faster", func(*testing.T) error { put(others); return nil }, others},
		{"it is filled", func(t *testing.T) error {
			_, err := p.Discard(t.Context(), 1)
			return err
		}, ""},
		{"another generation", func(t *testing.T) error {
			return client.HSet(t.Context(), p.keys[1], "generation", 2).Err()
		}, ""},
		{"a restart", func(t *testing.T) error { return server.Restart(t.Context()) }, old},
		{"everything is gone", func(t *testing.T) error { return client.FlushAll(t.Context()).Err() }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := client.HSet(t.Context(), p.keys[1], "generation", 1).Err(); err != nil {
				t.Fatal(err)
			}
			put(old)
			at, err := p.readAny(t.Context(), p.tables[0])
			if err != nil {
				t.Fatal(err)
			}
			if string(at.mark) != old {
				t.Errorf("it begins at %s, want %s", at.mark, old)
			}
			if err := tc.meanwhile(t); err != nil {
				t.Fatal(err)
			}
			if err := p.write(t.Context(), p.tables[0], at, json.RawMessage(written)); err != nil {
				t.Error(err)
			}
			if at, err = p.readAny(t.Context(), p.tables[0]); err != nil || string(at.mark) != tc.want {
				t.Errorf("then the place is %q, %v, want %s", at.mark, err, tc.want)
			}
		})
	}
	t.Run("what is no place", func(t *testing.T) {
		for _, text := range []string{"", "junk", written, `{"mark":` + written + `,"others":"f00"}`} {
			if err := client.HSet(t.Context(), p.keys[0], p.fields(1)[0], text).Err(); err != nil {
				t.Fatal(err)
			}
			if at, err := p.readAny(t.Context(), p.tables[0]); err != nil || at.mark != nil {
				t.Errorf("%q: it begins at %s, %v", text, at.mark, err)
			}
		}
	})
}

// TestGivenUp tells who fills a set whether others may still take it for one that has their
// tables: also where a filling that had found that out was not ended.
func TestGivenUp(t *testing.T) {
	bed := bedtest.New(t)
	client := redis.NewClient(&redis.Options{Addr: bed.Redis().Addr()})
	t.Cleanup(func() { _ = client.Close() })
	p := &checkpointStore{client: client, keys: []string{"ordergate:{orders}:places", redisset.StateKey("orders")}, tables: []*tableSource{{identity: "a"}, {identity: "a"}}}
	discardPosition := func(want bool) {
		t.Helper()
		if others, err := p.Discard(t.Context(), 1); err != nil || others != want {
			t.Errorf("others: %v, %v, want %v", others, err, want)
		}
	}
	has := func(fields ...string) {
		t.Helper()
		for _, field := range fields {
			if err := client.HSet(t.Context(), p.keys[0], field, "{}").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	discardPosition(false) // it is the first
	discardPosition(true)  // that one was not ended
	has(p.fields(1)...)
	discardPosition(false)
	has(append(p.fields(1), "1:/b")...)
	discardPosition(true)
	discardPosition(true)
	has(p.fields(2)...)
	discardPosition(true)
}

// TestReplacedMeanwhile reads the sources for a set that another instance replaces between two
// questions of the reading.
func TestReplacedMeanwhile(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
	t.Cleanup(func() { _ = client.Close() })
	open := func() *redisset.Set {
		set, err := redisset.New(client, redisset.Options{Name: "orders", Bits: redisbf.Options{Kind: redisbf.Bitmap, Key: "order:bloom:orders", Capacity: 1000}})
		bedtest.Check(t, err)
		t.Cleanup(set.Close)
		return set
	}
	other, set := open(), open()
	p := &checkpointStore{client: client, keys: []string{"ordergate:{orders}:places", redisset.StateKey("orders")}, set: set, tables: []*tableSource{{name: "db", identity: "db"}}}
	use := func(ctx context.Context, generation int) {
		bedtest.Check(t, client.HSet(ctx, p.keys[1], "generation", generation, "capacity", 1000, "shards", 1).Err())
	}
	for generation := range 2 {
		use(t.Context(), 1+generation)
		_ = other.Trust(t.Context(), []string{"7"}) // creates it
		bedtest.Check(t, other.Add(t.Context(), "7"))
		bedtest.Check(t, other.Trust(t.Context(), []string{"7"}))
	}
	use(t.Context(), 1)
	reads, done := 0, errors.New("the sources are read")
	err := (&Loader{set: set, checkpoints: p}).catchUpSet(t.Context(), func(ctx context.Context, _ func(context.Context, func(string) error) error) error {
		reads++
		at, err := p.readAny(ctx, p.tables[0])
		bedtest.Check(t, err)
		if reads == 1 {
			use(ctx, 2)
		}
		if err := p.sameGeneration(ctx, at); err != nil {
			return fmt.Errorf("reading again: %w", err)
		}
		return done
	})
	if !errors.Is(err, done) || reads != 2 {
		t.Errorf("%d reads: %v", reads, err)
	}
}

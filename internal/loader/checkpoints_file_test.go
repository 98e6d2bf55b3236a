package loader

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFilesOfInstances has two instances that load different contents of a file into one set.
func TestFilesOfInstances(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.HSet(t.Context(), redisset.StateKey("orders"), "generation", 1, "capacity", 1000, "shards", 1).Err(); err != nil {
		t.Fatal(err)
	}
	instance := func(content string) (*checkpointStore, *csvSource) {
		set, err := redisset.New(client, redisset.Options{Name: "orders", Bits: redisbf.Options{Kind: redisbf.Bitmap, Key: "order:bloom:orders", Capacity: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(set.Close)
		f := &csvSource{name: "file", path: filepath.Join(t.TempDir(), "orders.csv"), log: slog.New(slog.DiscardHandler)}
		if err := os.WriteFile(f.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return &checkpointStore{client: client, keys: []string{"ordergate:{orders}:places", redisset.StateKey("orders")}, set: set, files: []*csvSource{f}}, f
	}
	load := func(p *checkpointStore, want int) {
		t.Helper()
		n := 0
		loaded, err := p.loadFile(t.Context(), p.files[0], false, func(string) error { n++; return nil })
		if err == nil {
			err = loaded(t.Context())
		}
		if err != nil || n != want {
			t.Errorf("%d IDs were read, want %d: %v", n, want, err)
		}
	}
	has := func(p *checkpointStore, want bool) {
		t.Helper()
		if got, err := p.HasAll(t.Context(), 1); got != want || err != nil {
			t.Errorf("the set has the file: %v, %v", got, err)
		}
	}
	old, oldFile := instance("1\n")
	has(old, false)
	load(old, 1)
	has(old, true)
	load(old, 0)
	later, laterFile := instance("1\n2\n")
	has(later, false)
	load(later, 2)
	has(later, true)
	has(old, true)
	for _, tc := range []struct {
		p    *checkpointStore
		f    *csvSource
		want error
	}{{old, oldFile, filter.ErrForgotten}, {later, laterFile, nil}} { // a larger set
		err := tc.p.BeginFill(t.Context())
		if err == nil {
			err = tc.p.readFile(t.Context(), tc.f, func(string) error { return nil })
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("%v, want %v", err, tc.want)
		}
	}
	client.Del(t.Context(), "ordergate:{orders}:places")
	has(old, false)
	has(later, false)
}

package audit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestKept has Redis keep the newest entries, about as many as it should.
func TestKept(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
	defer client.Close()
	for i := range 3 * maxEntries {
		if err := Append(t.Context(), client, Entry{Who: "a@b", Action: Released, Key: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Read(t.Context(), client, 0)
	if err != nil || len(all) < maxEntries || len(all) > 2*maxEntries || all[0].Key != fmt.Sprint(3*maxEntries-1) {
		t.Errorf("%d entries, %v", len(all), err)
	}
	some, err := Read(t.Context(), client, 2)
	if err != nil || !slices.Equal(some, all[:2]) {
		t.Errorf("%v, %v", some, err)
	}
}

// TestWatch expects each entry once, also when Redis was killed in between.
func TestWatch(t *testing.T) {
	server := bedtest.New(t).Redis("--appendonly", "yes")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	add := func(key string) {
		bedtest.Eventually(t, "an entry is appended", func() bool { return Append(t.Context(), client, Entry{Key: key}) == nil })
	}
	add("before")
	last, err := readNew(t.Context(), client, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	step := func() {
		next, err := readNew(t.Context(), client, last, func(e Entry) { told = append(told, e.Key) })
		if last = next; err != nil {
			t.Log(err)
		}
	}
	step()
	add("first")
	add("second")
	step()
	server.Kill()
	step()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	add("third")
	bedtest.Eventually(t, "all are told of", func() bool { step(); return len(told) >= 3 })
	step()
	if want := []string{"first", "second", "third"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { Watch(ctx, client, func(Entry) {}) })
	stop()
	wg.Wait()
}

package command

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

func TestExplainLive(t *testing.T) {
	store := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer client.Close()
	locker, err := redislock.New(client, redislock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locker.Acquire(t.Context(), "order:lock:42")
	if err != nil {
		t.Fatal(err)
	}
	permits, err := redislock.New(client, redislock.Options{Kind: redislock.Semaphore, Permits: 5})
	if err != nil {
		t.Fatal(err)
	}
	permit, err := permits.Acquire(t.Context(), "merchant:settling:7")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Set("order:lock:43", "worker-7"); err != nil {
		t.Fatal(err)
	}
	locker.Close() // or renewal would change the store
	permits.Close()
	store.HSet("order:lock:44", "9b2c6a10-0000-0000-0000-000000000000:31", "1")
	before := store.Dump()
	file := explainConfig(t, fmt.Sprintf("addresses: ['%s']", store.Addr()))
	tests := []struct {
		name, line, want string
		args             []string
	}{
		{"free", "POST /orders/1/settle", "lock now     order:lock:1: free\n", nil},
		{"held by ordergate", "POST /orders/42/settle", "lock now     order:lock:42: held by " + lease.Owner()[:lockreport.ShownOwner] + "..., 30s left\n", nil},
		{"held for ever", "POST /orders/44/settle", "lock now     order:lock:44: held by 9b2c6a10..., without an end\n", nil},
		{"held as a string", "POST /orders/43/settle", "lock now     order:lock:43: held by something else, a string, without an end\n", nil},
		{"limited", "POST /limited/42", "lock now     merchant:settling:7: held by " + permit.Owner()[:lockreport.ShownOwner] + "..., permits left: 4\n", []string{"-H", jsonType, "-d", `{"merchantId":7}`}},
		{"limited, of another", "POST /limited/1", "lock now     merchant:settling:8: free, permits left: 5\n", []string{"-H", jsonType, "-d", `{"merchantId":8}`}},
		{"takes no lock", "GET /orders/42", "lock now     nothing to ask: this request takes no lock\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"explain", "--config", file, "--live", tt.line}, tt.args...)
			code, stdout, stderr := command(t.Context(), args...)
			if code != exitDone || stderr != "" || !strings.HasSuffix(stdout, tt.want) {
				t.Errorf("exit code %d, stderr %q, got\n%s\nwant %s", code, stderr, stdout, tt.want)
			}
			if strings.Contains(stdout, lease.Owner()) {
				t.Error("tells the name that re-enters the lock")
			}
		})
	}
	if diff := cmp.Diff(before, store.Dump()); diff != "" {
		t.Errorf("asking has changed the store (-before +after):\n%s", diff)
	}
}

// TestExplainLiveWithoutStore asks where there is nobody, or nobody who answers.
func TestExplainLiveWithoutStore(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // the kernel takes connections, and nobody reads them
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	for name, store := range map[string]string{
		"gone":     fmt.Sprintf("addresses: ['%s']", gone.Addr()),
		"silent":   fmt.Sprintf("addresses: ['%s']", silent.Addr()),
		"embedded": "mode: embedded",
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := explainJSON(t, nil, "--config", explainConfig(t, store), "--live", "POST /orders/42/settle")
			if len(e.Live) != 1 || e.Live[0].State != "unreachable" || e.Live[0].Error == nil {
				t.Fatalf("got %+v", e.Live)
			}
			if text := e.Live[0].String(); !strings.HasPrefix(text, "order:lock:42: store not reachable: ") || strings.Contains(text, "\n") {
				t.Errorf("got %q", text)
			}
			if e.Verdict != nil {
				t.Errorf("verdict %s, want it left to run time", *e.Verdict)
			}
		})
	}
}

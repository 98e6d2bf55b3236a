package main

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

func TestCounter(t *testing.T) {
	const ping, set = "*1\r\n$4\r\nPING\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\n*1\r\nPI\r\n"
	tests := []struct {
		name, stream string
		want         int64
		ok           bool
	}{
		{"nothing", "", 0, true},
		{"one", ping, 1, true},
		{"a pipeline, and a value that looks like a command", ping + set + set + ping, 4, true},
		{"cut off in a length", set + ping[:5], 1, true},
		{"cut off in the last value", ping + set[:len(set)-3], 2, true},
		{"not by a client of ours", ping + "PING\r\n" + ping, 1, false},
		{"a negative length", ping + "*1\r\n$-5\r\n", 1, false},
		{"an empty line", ping + "\n" + ping, 1, false},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 7, 1000} { // of what a read brings
			var got atomic.Int64
			c := counter{count: &got}
			var err error
			for rest := []byte(tt.stream); len(rest) > 0 && err == nil; {
				n := min(size, len(rest))
				_, err = c.Write(rest[:n])
				rest = rest[n:]
			}
			if got.Load() != tt.want || (err == nil) != tt.ok {
				t.Errorf("%s, %d bytes at a time: %d commands, error %v; want %d", tt.name, size, got.Load(), err, tt.want)
			}
		}
	}
}

// TestProxy counts what a client says, but not what a script calls.
func TestProxy(t *testing.T) {
	in := newTestArena(t)
	client := redis.NewClient(&redis.Options{Addr: in.proxy.addr()})
	defer client.Close()
	ctx := t.Context()
	// What it says to connect comes first; a pipeline has a connection of its own.
	if err := client.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Ping(ctx).Err() }); err != nil {
		t.Fatal(err)
	}
	if err := in.proxy.start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.Eval(ctx, "redis.call('set', KEYS[1], 1) return redis.call('get', KEYS[1])", []string{"k"}).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, "k")
		p.Get(ctx, "k")
		p.Set(ctx, "k", strings.Repeat("x", 100_000), 0)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := benchmark.Sample{}
	if err := in.proxy.stop(ctx, 2, got); err != nil || got[requests] != 2 {
		t.Errorf("%v, %v; want 4 commands, 2 an operation", got, err)
	}
}

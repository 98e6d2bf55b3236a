package redislock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// Inspect reads a lock of one kind and format, whoever took it. It changes
// nothing. A key that holds something else is no error, but the state's Foreign.
func Inspect(ctx context.Context, client redis.UniversalClient, kind Kind, format Format, key string) (State, error) {
	r := newReader(client, kind, format)
	node := redis.Cmdable(client)
	if r.cluster != nil {
		master, err := r.cluster.MasterForKey(ctx, key)
		if err != nil {
			return State{}, fmt.Errorf("inspecting lock %s: %w", key, err)
		}
		node = master
	}
	states, err := r.read(ctx, node, []string{key})
	if err != nil {
		return State{}, fmt.Errorf("inspecting lock %s: %w", key, err)
	}
	return states[0], nil
}

// mostListed bounds how many holders of a lock are read, how many waiters, and
// how many bytes of an owner. Others wait while Redis reads them.
const mostListed = 1000

// reader reads locks of one kind and format.
type reader struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	kind    Kind
	format  Format
	script  *redisbatch.Script
}

func newReader(client redis.UniversalClient, kind Kind, format Format) *reader {
	r := &reader{client: client, kind: kind, format: format, script: operatorScript(kind, format, "inspect")}
	r.cluster, _ = client.(*redis.ClusterClient)
	return r
}

// read reads locks, all in one round trip and a second for who waits. Node is
// where releases of them are published: on a cluster their master.
func (r *reader) read(ctx context.Context, node redis.Cmdable, keys []string) ([]State, error) {
	answers, err := r.run(ctx, keys)
	if err != nil {
		return nil, err
	}
	states := make([]State, len(keys))
	channels := make([]string, len(keys))
	for i, key := range keys {
		states[i] = State{Key: key, Kind: r.kind, Format: r.format}
		if err := states[i].decode(answers[i]); err != nil {
			return nil, err
		}
		channels[i] = Channel(r.kind, key)
	}
	if r.kind == Fair { // each waiter has a channel of its own, and they stand in line
		return states, nil
	}
	numSub := node.PubSubNumSub
	if r.cluster != nil {
		numSub = node.PubSubShardNumSub
	}
	heard, err := numSub(ctx, channels...).Result()
	if _, refused := errors.AsType[redis.Error](err); err != nil && !refused { // an access control may forbid it
		return nil, err
	}
	for i := range states {
		states[i].Waiting = -1
		if err == nil {
			states[i].Waiting = int(heard[channels[i]])
		}
	}
	return states, nil
}

// run runs the script for each key.
func (r *reader) run(ctx context.Context, keys []string) ([][]string, error) {
	shape := shapeOf(r.kind, r.format)
	type call struct {
		key string
		cmd *redis.Cmd
	}
	calls := make([]*call, len(keys))
	for i, key := range keys {
		calls[i] = &call{key: key}
	}
	send := func(calls []*call, withText bool) {
		name, script := "evalsha", r.script.Hash
		if withText {
			name, script = "eval", r.script.Text
		}
		redisbatch.EnsureErrors(r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, c := range calls {
				named := operatorKeys(r.kind, c.key)
				args := []any{name, script, len(named)}
				for _, k := range named {
					args = append(args, k)
				}
				c.cmd = p.Do(ctx, append(args, shape, mostListed)...)
			}
			return nil
		}))
	}
	redisbatch.SendByName(calls, send, func(c *call) error { return c.cmd.Err() })
	answers := make([][]string, len(keys))
	for i, c := range calls {
		var err error
		if answers[i], err = c.cmd.StringSlice(); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// shapeOf returns what a lock looks like in Redis, as lua/holders.lua has it.
func shapeOf(kind Kind, format Format) string {
	switch {
	case format == String:
		return "text"
	case kind == Read || kind == Write:
		return "rw"
	case kind == Fair || kind == Semaphore:
		return string(kind)
	}
	return "hash"
}

// operatorScript composes a script for operators. A read-write lock may be held
// from either side: the message that wakes readers and writers alike is the one of
// its writers.
func operatorScript(kind Kind, format Format, deed string) *redisbatch.Script {
	if kind == Read {
		kind = Write
	}
	return compose(append(libraryOf(kind, format), "entries", "holders"), deed)
}

// operatorKeys returns the keys of such a script, as lua/holders.lua has them.
func operatorKeys(kind Kind, key string) []string {
	keys := []string{key, after(key, recordSuffix)}
	for _, k := range keysOfKind(kind, key) {
		if k != "" {
			keys = append(keys, k)
		}
	}
	return append(keys, FenceKey(key))
}

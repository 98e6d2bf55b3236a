package redisbf

import (
	"context"
	"embed"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// compose makes a script of files of the directory lua, at its first use.
func compose(names ...string) func() *redisbatch.Script {
	return sync.OnceValue(func() *redisbatch.Script {
		var text string
		for _, name := range names {
			part, err := luaFiles.ReadFile("lua/" + name + ".lua")
			if err != nil {
				panic(err) // it is compiled in
			}
			text += string(part)
		}
		return redisbatch.NewScript(text)
	})
}

// call is a command or script about one shard, and what its reply means.
type call struct {
	script *redisbatch.Script // nil for a command
	keys   []string           // of the script
	args   []any              // of the script, or the command with its arguments
	// read interprets a reply that is no error.
	read func(reply any) error
	// failed, if set, gives an error of Redis the name that this package has for it.
	failed func(error) error

	shard int
	cmd   *redis.Cmd
}

// maxCalls is how many calls one pipeline has. A server with little CPU time has to answer all of
// them before the client takes it for hung. With 64, adding was 10 to 20 percent slower in
// BenchmarkAdd.
const maxCalls = 16

// sendCalls sends the calls, at most maxCalls of them in one pipeline, and returns the
// first error.
func (s *Set) sendCalls(ctx context.Context, calls []*call) error {
	for len(calls) > 0 {
		n := min(len(calls), maxCalls)
		if err := s.sendSome(ctx, calls[:n]); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

func (s *Set) sendSome(ctx context.Context, calls []*call) error {
	redisbatch.SendByName(calls, func(calls []*call, withText bool) {
		redisbatch.EnsureErrors(s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, c := range calls {
				c.cmd = c.command(ctx, withText)
				_ = p.Process(ctx, c.cmd) // only queued
			}
			return nil
		}))
	}, func(c *call) error { return c.cmd.Err() })
	for _, c := range calls {
		reply, err := c.cmd.Result()
		switch {
		case err == nil:
			err = c.read(reply)
		case c.failed != nil:
			err = c.failed(err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.kind.keys(c.shard)[0], err)
		}
	}
	return nil
}

func (c *call) command(ctx context.Context, withText bool) *redis.Cmd {
	if c.script == nil {
		return redis.NewCmd(ctx, c.args...)
	}
	name, script := "evalsha", c.script.Hash
	if withText {
		name, script = "eval", c.script.Text
	}
	args := append(make([]any, 0, 3+len(c.keys)+len(c.args)), name, script, len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	return redis.NewCmd(ctx, append(args, c.args...)...)
}

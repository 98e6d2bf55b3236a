package redisbf

import (
	"context"
	"crypto/sha1" // as Redis names scripts
	"embed"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is a Lua script, and the name that Redis gives it.
type script struct{ text, hash string }

// compose makes a script of files of the directory lua.
func compose(names ...string) *script {
	var text string
	for _, name := range names {
		part, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // it is compiled in
		}
		text += string(part)
	}
	sum := sha1.Sum([]byte(text))
	return &script{text: text, hash: hex.EncodeToString(sum[:])}
}

// call is a command or script about one shard, and what its reply means.
type call struct {
	script *script  // nil for a command
	keys   []string // of the script
	args   []any    // of the script, or the command with its arguments
	// read judges a reply that is no error.
	read func(reply any) error
	// failed, if set, names an error.
	failed func(error) error

	shard int
	cmd   *redis.Cmd
}

// run sends the calls, at most a flight's worth in one pipeline, and returns the
// first error. A server that does not know a script gets its text.
func (s *Set) run(ctx context.Context, calls []*call) error {
	for len(calls) > 0 {
		n := min(len(calls), maxCalls)
		if err := s.runSome(ctx, calls[:n]); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// maxCalls bounds how much a server has to keep of what it was sent.
const maxCalls = 64

func (s *Set) runSome(ctx context.Context, calls []*call) error {
	s.send(ctx, calls, "evalsha")
	var again []*call // flushed, restarted, or another server
	for _, c := range calls {
		if c.script != nil && redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		s.send(ctx, again, "eval")
	}
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

func (s *Set) send(ctx context.Context, calls []*call, eval string) {
	stamp(s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range calls {
			args := c.args
			if c.script != nil {
				args = make([]any, 0, 3+len(c.keys)+len(c.args))
				text := c.script.hash
				if eval == "eval" {
					text = c.script.text
				}
				args = append(args, eval, text, len(c.keys))
				for _, key := range c.keys {
					args = append(args, key)
				}
				args = append(args, c.args...)
			}
			c.cmd = redis.NewCmd(ctx, args...)
			_ = p.Process(ctx, c.cmd) // only queued
		}
		return nil
	}))
}

// stamp makes sure that the commands of a pipeline that failed have errors. Those
// of go-redis have their own, unless its last try fails in a way that it would try
// again: then they have neither an error nor a value.
func stamp(cmds []redis.Cmder, err error) {
	if err == nil || slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return
	}
	for _, c := range cmds {
		c.SetErr(err)
	}
}

// group is some IDs of one shard, and their answers.
type group struct {
	shard   int
	ids     []string
	answers []Answer
	state   standing // of the shard
	err     error
}

// reading sets the answers of a question.
type reading func([]Answer) (standing, error)

// standing is what the marks of a shard say.
type standing int8

const (
	notWhole standing = iota
	isWhole
	isOver // the marks are of a load before: there are later ones to look at
)

// judge is what the bits of an ID say in a shard that stands like this.
func judge(has bool, state standing) Answer {
	switch {
	case has:
		return Maybe
	case state == isWhole:
		return Absent
	}
	return Unknown
}

// exchange asks for the groups in one pipeline and sets their answers. One with an
// error is left Unknown.
func (s *Set) exchange(ctx context.Context, groups []*group) {
	pipe := s.client.Pipeline()
	if s.kind.atomic() {
		pipe = s.client.TxPipeline()
	}
	reads := make([]reading, len(groups))
	for i, g := range groups {
		reads[i] = s.kind.ask(pipe, g.shard, g.ids)
	}
	// A replica of a cluster sends its clients away. Any other answers them, with
	// what it has: a server says here what it is on the connection that it answered
	// on. ROLE would say so too, and is forbidden to many a user.
	var hello *redis.MapStringInterfaceCmd
	if s.cluster == nil {
		hello = redis.NewMapStringInterfaceCmd(ctx, "hello")
		_ = pipe.Process(ctx, hello)
	}
	stamp(pipe.Exec(ctx))
	var denied error
	if hello != nil {
		denied = isPrimary(hello)
	}
	for i, g := range groups {
		g.state, g.err = reads[i](g.answers)
		switch {
		case g.err == nil:
			g.err = denied
		case redis.HasErrorPrefix(g.err, "unknown command"):
			g.err = fmt.Errorf("%w (%w)", errTooOld, g.err)
		}
		if g.err != nil {
			clear(g.answers)
			g.state = notWhole
			g.err = fmt.Errorf("asking %s: %w", s.kind.keys(g.shard)[0], g.err)
		}
	}
}

func isPrimary(hello *redis.MapStringInterfaceCmd) error {
	about, err := hello.Result()
	if err != nil {
		return fmt.Errorf("asking the server for its role: %w", err)
	}
	if about["role"] != "master" {
		return errReplica
	}
	return nil
}

package redisbf

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/redisbatch"
)

// group is some IDs of one shard, and their answers.
type group struct {
	shard   int
	ids     []string
	answers []presence.Answer
	state   shardState // of the shard
	err     error
}

// readAnswers stores the answers to a query.
type readAnswers func([]presence.Answer) (shardState, error)

// shardState is what the marks of a shard say.
type shardState int8

const (
	incomplete shardState = iota
	complete
	superseded // the marks are of an earlier load; there are later ones
)

// judge is what the bits of an ID mean in a shard of this state.
func judge(has bool, state shardState) presence.Answer {
	switch {
	case has:
		return presence.Maybe
	case state == complete:
		return presence.Absent
	}
	return presence.Unknown
}

// exchange asks for the groups in one pipeline and sets their answers. One with an
// error is left Unknown.
func (s *Set) exchange(ctx context.Context, groups []*group) {
	pipe := s.client.Pipeline()
	if s.kind.atomic() {
		pipe = s.client.TxPipeline()
	}
	reads := make([]readAnswers, len(groups))
	for i, g := range groups {
		reads[i] = s.kind.queueLookup(pipe, g.shard, g.ids)
	}
	// A replica of a cluster sends its clients away. Any other answers them, with
	// what it has: a server says here what it is on the connection that it answered
	// on. ROLE would say so too, and is forbidden to many a user.
	var hello *redis.MapStringInterfaceCmd
	if s.cluster == nil {
		hello = redis.NewMapStringInterfaceCmd(ctx, "hello")
		_ = pipe.Process(ctx, hello)
	}
	redisbatch.EnsureErrors(pipe.Exec(ctx))
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
			g.state = incomplete
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

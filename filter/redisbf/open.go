package redisbf

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// found is what is in Redis in the place of a shard.
type found struct {
	missing bool
	problem string // why it is not the shard; begins with the key
	foreign bool   // with a problem: all that is different is the secret
}

// spareRounds is how often Open looks again after another process made what it was about
// to make, apart from once for each shard: that other process may make them all so.
const spareRounds = 4

// open makes the shards that are missing, one by one: a server may need a third of a
// second for a large one, and others want to be served in between. Of two processes
// with different options only one makes the first shard; the other finds that it
// differs before it has made anything.
func (s *Set) open(ctx context.Context) error {
	// A server that can't answer is told from one that has something else in the
	// place of the shard: that is looked at below.
	probe := group{}
	if s.exchange(ctx, []*group{&probe}); errors.Is(probe.err, errReplica) || errors.Is(probe.err, errTooOld) {
		return probe.err
	}
	for range s.opts.Shards + spareRounds {
		missing, err := s.inspect(ctx)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			_, err := s.shardStates(ctx, 0, s.opts.Shards)
			return err
		}
		for i, shard := range missing {
			var made bool
			if err := s.sendCalls(ctx, []*call{s.kind.create(shard, &made)}); err != nil {
				return err
			}
			if i == 0 && !made {
				break // by whom, is looked at above
			}
		}
	}
	return errors.New("its keys appear and disappear")
}

// inspect finds out which shards are missing. One that is another's is an error.
func (s *Set) inspect(ctx context.Context) (missing []int, err error) {
	for from := 0; from < s.opts.Shards; from += maxCalls {
		states, err := s.kind.inspect(ctx, from, min(from+maxCalls, s.opts.Shards))
		if err != nil {
			return nil, err
		}
		for i, state := range states {
			switch {
			case state.foreign:
				return nil, fmt.Errorf("%s: %w", state.problem, ErrOtherSecret)
			case state.problem != "":
				return nil, errors.New(state.problem)
			case state.missing:
				missing = append(missing, from+i)
			}
		}
	}
	return missing, nil
}

// shardStates returns the states of shards, from one up to another, by the marks of the
// last load.
func (s *Set) shardStates(ctx context.Context, from, to int) ([]shardState, error) {
	states := make([]shardState, to-from)
	var groups []*group
	for shard := from; shard < to; shard++ {
		groups = append(groups, &group{shard: shard})
	}
	rewound := make(map[int]bool)
	for range maxGenerations { // or less, if no more are over
		if len(groups) == 0 {
			break
		}
		var again []*group
		for some := range slices.Chunk(groups, maxLookups) {
			s.exchange(ctx, some)
			for _, g := range some {
				if g.err != nil {
					return nil, g.err
				}
				states[g.shard-from] = g.state
				switch {
				case g.state == superseded:
					again = append(again, g)
				case g.state == incomplete && !rewound[g.shard] && s.kind.rewind(g.shard):
					rewound[g.shard] = true
					again = append(again, g)
				}
			}
		}
		groups = again
	}
	return states, nil
}

// creation returns the call of a script that makes a shard and answers 1, or 0 if
// it is there.
func (s *Set) creation(script *redisbatch.Script, shard int, keys []string, made *bool, args ...any) *call {
	return &call{script: script, keys: keys, args: args, shard: shard, read: func(reply any) error {
		*made = reply == int64(1)
		return nil
	}}
}

// lookedAt names the key of an error.
func lookedAt(key string, err error) error { return fmt.Errorf("looking at %s: %w", key, err) }

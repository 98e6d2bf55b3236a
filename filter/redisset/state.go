package redisset

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/wait"
)

// generation is one set of bits.
type generation struct {
	Number   int    // 1 is the first
	Capacity uint64 // IDs
	Shards   int
}

// state is the state of a filter that all instances share. In Redis it is a hash with the
// fields below; a missing field is zero.
type state struct {
	Generation int // in use; 0: there is no state
	Capacity   uint64
	Shards     int

	Next         int // being filled, 0: none
	NextCapacity uint64
	NextShards   int
	Read         uint64 // IDs in it so far
	BeganMS      int64  // by the clock of the instance that fills it, ms since 1970

	Old       int // to be dropped, 0: none
	OldShards int

	Forms string // forms of the IDs that it was filled with

	LastDay int   // last day with a segment, in days since 1970
	Fence   int64 // of the leader lock of the writer
}

// fields maps the names of the hash fields to their values.
func (s *state) fields() map[string]any {
	return map[string]any{
		"generation": &s.Generation, "capacity": &s.Capacity, "shards": &s.Shards,
		"next": &s.Next, "next_capacity": &s.NextCapacity, "next_shards": &s.NextShards,
		"read": &s.Read, "began_ms": &s.BeganMS,
		"old": &s.Old, "old_shards": &s.OldShards,
		"made": &s.LastDay, "fence": &s.Fence, "forms": &s.Forms,
	}
}

// parse reads a state. A field that is not a number is an error.
func parse(hash map[string]string) (s state, err error) {
	for name, at := range s.fields() {
		text, there := hash[name]
		if !there {
			continue
		}
		switch at := at.(type) {
		case *string:
			*at = text
			continue
		case *int:
			*at, err = strconv.Atoi(text)
		case *int64:
			*at, err = strconv.ParseInt(text, 10, 64)
		case *uint64:
			*at, err = strconv.ParseUint(text, 10, 64)
		}
		if err != nil || text[0] == '-' && name != "made" {
			return state{}, fmt.Errorf("field %s is %q", name, text)
		}
	}
	return s, nil
}

func (s *state) current() generation { return generation{s.Generation, s.Capacity, s.Shards} }
func (s *state) next() generation    { return generation{s.Next, s.NextCapacity, s.NextShards} }
func (s *state) old() generation     { return generation{s.Old, s.Capacity, s.OldShards} }

// first is the state before the first write.
func (s *Set) first() *state {
	shards := s.opts.Bits.Shards
	if shards == 0 {
		shards = 1
	}
	return &state{Generation: 1, Capacity: s.opts.Bits.Capacity, Shards: shards}
}

// view is the state at one moment, with its sets. It is replaced, not changed.
type view struct {
	state
	at                 time.Time // before it was read
	checkpointed       bool      // it has a checkpoint of each source
	current, next, old target    // next and old are nil if there is none
}

// all returns the sets that take new IDs, the one in use first.
func (v *view) all() []target {
	all := []target{v.current}
	for _, t := range []target{v.next, v.old} {
		if t != nil {
			all = append(all, t)
		}
	}
	return all
}

// freshView returns a view that is not older than ViewAge.
func (s *Set) freshView(ctx context.Context) (*view, error) {
	if v := s.view.Load(); v != nil && time.Since(v.at) < s.opts.ViewAge {
		return v, nil
	}
	return s.refresh(ctx)
}

// refresh reads the state in Redis. Callers that waited for another refresh use its result, if
// it began after their call.
func (s *Set) refresh(ctx context.Context) (*view, error) {
	called := time.Now()
	s.refreshMu.Lock()
	defer s.refreshMu.Unlock()
	known := s.view.Load()
	if known != nil && known.at.After(called) {
		return known, nil
	}
	at := time.Now()
	hash, err := s.client.HGetAll(ctx, s.key).Result()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.key, err)
	}
	if err := s.loadSecret(ctx); err != nil {
		return nil, err
	}
	now, err := parse(hash)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.key, err)
	}
	if known != nil && now.Generation < known.Generation && known.Generation > 1 {
		// A failover or a delete has removed it. Generation numbers only grow.
		now = state{Generation: known.Generation, Capacity: known.Capacity, Shards: known.Shards, Fence: max(known.Fence, now.Fence), LastDay: known.LastDay, Forms: known.Forms}
		if err := s.write(ctx, &now); err != nil {
			return nil, err
		}
	}
	if now.Generation == 0 {
		first := s.first()
		now.Generation, now.Capacity, now.Shards = first.Generation, first.Capacity, first.Shards
	}
	v := &view{state: now, at: at, checkpointed: true}
	if s.opts.Checkpoints != nil {
		if v.checkpointed, err = s.opts.Checkpoints.HasAll(ctx, now.Generation); err != nil {
			return nil, err
		}
	}
	used := make(map[string]target)
	for _, g := range []struct {
		generation
		to *target
	}{{now.current(), &v.current}, {now.next(), &v.next}, {now.old(), &v.old}} {
		if g.Number == 0 || s.singleGeneration() && g.to != &v.current {
			continue
		}
		t, err := s.target(g.generation)
		if err != nil {
			return nil, err
		}
		*g.to, used[t.name()] = t, t
	}
	for name, t := range s.sets {
		if used[name] == nil {
			go t.close() // it waits for the questions that are on their way
		}
	}
	s.sets = used
	s.view.Store(v)
	return v, nil
}

// isComplete asks Redis whether the set has everything that it is to be filled with.
func (s *Set) isComplete(ctx context.Context) (bool, error) {
	v, err := s.refresh(ctx)
	if err != nil {
		return false, err
	}
	lacking, err := s.incomplete(ctx, v)
	return err == nil && len(lacking) == 0, err
}

// AwaitComplete waits until the set is complete, or ctx ends.
func (s *Set) AwaitComplete(ctx context.Context) error {
	for {
		whole, err := s.isComplete(ctx)
		if err != nil || whole {
			return err
		}
		if err := wait.For(ctx, max(s.opts.ViewAge/20, time.Duration(s.view.Load().Shards)*perShard)); err != nil {
			return err
		}
	}
}

// hasOtherForms reports whether a set was filled with IDs in other forms, or was not filled: a
// lookup may use a form that was not added.
func (s *Set) hasOtherForms(v *view) bool { return s.opts.Fill != nil && v.Forms != s.opts.Forms }

// incomplete returns the sets that must be filled.
func (s *Set) incomplete(ctx context.Context, v *view) ([]*redisbf.Set, error) {
	lacking, err := v.current.incomplete(ctx)
	if err == nil && s.hasOtherForms(v) {
		return v.current.sets()
	}
	return lacking, err
}

// singleGeneration reports whether the set has one generation only, because Java services know
// no other. An earlier set of the filter may have left a state with several.
func (s *Set) singleGeneration() bool { return s.opts.Bits.Kind == redisbf.Redisson }

// target returns the set of a generation: the existing one, or a new one. The caller holds
// refreshMu, unless s is new.
func (s *Set) target(g generation) (target, error) {
	bits := s.opts.Bits
	bits.Secret = s.secret
	if !s.singleGeneration() {
		bits.Capacity, bits.Shards = g.Capacity, g.Shards
		if g.Number > 1 {
			bits.Key += ":g" + strconv.Itoa(g.Number)
		}
	}
	if t := s.sets[bits.Key]; t != nil {
		return t, nil
	}
	if s.opts.Segments != nil {
		return newDays(s, bits)
	}
	return newSingle(s.client, bits)
}

//go:embed write.lua
var writeSource string

var writeScript = redis.NewScript(writeSource)

// errSuperseded says that a later holder of the leader lock has written the state.
var errSuperseded = errors.New("another ordergate has taken over")

// write replaces the state, unless a later holder of the leader lock has written it.
func (s *Set) write(ctx context.Context, now *state) error {
	args := []any{now.Fence, now.Generation}
	for name, at := range now.fields() {
		if field := reflect.ValueOf(at).Elem(); !field.IsZero() {
			args = append(args, name, fmt.Sprint(field))
		}
	}
	done, err := writeScript.Run(ctx, s.client, []string{s.key}, args...).Int()
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.key, err)
	}
	if done == 0 {
		return fmt.Errorf("writing %s: %w", s.key, errSuperseded)
	}
	return nil
}

// Progress describes the work on a set, by any instance.
type Progress struct {
	Generation int    // in use; 0: not known yet
	Next       int    // being filled, 0: none
	From, To   uint64 // capacities, while there is a next one
	Read       uint64 // IDs in the next one so far
	Began      time.Time
	Old        int // to be dropped, 0: none
}

// Progress returns the progress as of at most ViewAge ago.
func (s *Set) Progress() (p Progress) {
	v := s.view.Load()
	if v == nil {
		return p
	}
	p = Progress{Generation: v.Generation, Next: v.Next, Read: v.Read, Old: v.Old}
	if v.Next != 0 {
		p.From, p.To, p.Began = v.Capacity, v.NextCapacity, time.UnixMilli(v.BeganMS)
	}
	return p
}

package loader

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/wait"
)

//go:embed place.lua
var placeSource string

var placeScript = redis.NewScript(placeSource)

// checkpointed is a source with a checkpoint.
type checkpointed interface {
	// checkpointOf returns the source's name, and the identity of its checkpoint.
	checkpointOf() (source, identity string)
}

// checkpointStore keeps the checkpoints in the tables up to which a set in Redis has every
// order, and for each file the sums of those that were loaded into it. Only Redis has them: a restart or a failover that loses a part of the set loses them
// as well. So the store reads a checkpoint before each reading, and replaces it only if the set
// has not changed since. An instance that fills the set discards them before, and stores new
// ones at the end. Each belongs to one generation of one set. The store ignores those of other
// sets.
type checkpointStore struct {
	client redis.UniversalClient
	keys   []string // the checkpoints, the state of the set
	name   string   // identifies the set among others of the filter
	set    *redisset.Set
	tables []*tableSource
	files  []*csvSource

	// Used while this process fills the set, by one goroutine at a time.
	began  checkpoint
	filled map[string]json.RawMessage // the marks reached by the filling, by the sources' names
}

// checkpoint is a mark in a table, with the state of the set at its reading.
type checkpoint struct {
	history    string // of the server that has the mark
	generation string // of the set
	filling    string // identifies its last filling
	text       string // as stored; "": there is none
	others     string // the other servers with a part of the set
	mark       json.RawMessage
}

// storedCheckpoint is the text of a checkpoint.
type storedCheckpoint struct {
	Mark json.RawMessage `json:"mark"`
	// Others are the histories of the other servers of a cluster with a part of the set. A
	// server that restarts with less data has another history.
	Others string `json:"others,omitempty"`
}

// read returns up to where the set has a table's orders. Later additions go to the generation
// of the checkpoint.
func (p *checkpointStore) read(ctx context.Context, t checkpointed) (checkpoint, error) {
	at, err := p.readAny(ctx, t)
	if err == nil {
		err = p.sameGeneration(ctx, at)
	}
	return at, err
}

// readAny is read for a set of any generation.
func (p *checkpointStore) readAny(ctx context.Context, t checkpointed) (at checkpoint, err error) {
	name, _ := t.checkpointOf()
	if at.others, err = p.set.OtherServers(ctx); err != nil {
		return at, fmt.Errorf("source %s: %w", name, err)
	}
	if err := p.run(ctx, &at, p.of(t)); err != nil {
		return at, fmt.Errorf("source %s: reading its checkpoint: %w", name, err)
	}
	var kept storedCheckpoint
	// Without a valid checkpoint of an intact set, all of the table is read.
	if json.Unmarshal([]byte(at.text), &kept) == nil && kept.Others == at.others {
		at.mark = kept.Mark
	}
	return at, nil
}

func (p *checkpointStore) sameGeneration(ctx context.Context, at checkpoint) error {
	switch now, err := p.set.Generation(ctx); {
	case err != nil:
		return err
	case strconv.Itoa(now) != at.generation:
		return redisset.ErrReplaced
	}
	return nil
}

// run calls the script, and sets the fields of at from its reply.
func (p *checkpointStore) run(ctx context.Context, at *checkpoint, args ...any) error {
	reply, err := placeScript.Run(ctx, p.client, p.keys, args...).StringSlice()
	if err == nil && len(reply) != 4 {
		err = fmt.Errorf("unexpected reply %q", reply)
	}
	if err == nil {
		at.history, at.generation, at.filling, at.text = reply[0], reply[1], reply[2], reply[3]
	}
	return err
}

// write replaces a checkpoint by the mark of a reading that was added to the set. It does
// nothing if the set or the checkpoint has changed since it was read.
func (p *checkpointStore) write(ctx context.Context, t checkpointed, at checkpoint, mark json.RawMessage) error {
	name, _ := t.checkpointOf()
	switch others, err := p.set.OtherServers(ctx); {
	case err != nil:
		return fmt.Errorf("source %s: %w", name, err)
	case others != at.others:
		return nil
	}
	text, err := json.Marshal(storedCheckpoint{mark, at.others})
	if err != nil {
		return fmt.Errorf("source %s: its checkpoint: %w", name, err)
	}
	if string(text) == at.text {
		return nil
	}
	if err := p.run(ctx, &checkpoint{}, p.of(t), at.history, at.generation, at.filling, at.text, string(text)); err != nil {
		return fmt.Errorf("source %s: storing its checkpoint: %w", name, err)
	}
	return nil
}

// catchUp adds the rows that may be new in the tables to the set, by add, and the files that were
// not loaded into it. Call moved when all of them have been added: it moves the checkpoints.
func (p *checkpointStore) catchUp(ctx context.Context, add func(id string) error) (moved func(context.Context) error, err error) {
	var all []func(context.Context) error
	for _, t := range p.tables {
		at, err := p.read(ctx, t)
		if err != nil {
			return nil, err
		}
		mark, err := t.behind(ctx, at.mark, add)
		if err != nil {
			return nil, err
		}
		all = append(all, func(ctx context.Context) error { return p.write(ctx, t, at, mark) })
	}
	for _, f := range p.files {
		loaded, err := p.loadFile(ctx, f, false, add)
		if err != nil {
			return nil, err
		}
		all = append(all, loaded)
	}
	return func(ctx context.Context) (err error) {
		for _, move := range all {
			err = errors.Join(err, move(ctx))
		}
		return err
	}, nil
}

// unreadBySet is a source of the rows that the set in Redis lacks.
type unreadBySet struct{ *Loader }

// IDs implements filter.Source. It yields nothing: the IDs are added to the set.
func (u unreadBySet) IDs(ctx context.Context, _ func(id string) error) error {
	return u.catchUpSet(ctx, u.filter.Include)
}

// catchUpSet adds the rows that may be new in the tables to the set in Redis, and then moves the
// checkpoints. It waits until the set is complete: the instance that fills it reads all of the
// tables. If the set is replaced meanwhile, it begins again. Take is a method of the filter that
// accepts a reading.
func (u *Loader) catchUpSet(ctx context.Context, take func(context.Context, func(context.Context, func(string) error) error) error) error {
	for {
		if err := u.set.AwaitComplete(ctx); err != nil {
			return err
		}
		moved := func(context.Context) error { return nil }
		err := take(ctx, func(ctx context.Context, add func(id string) error) (err error) {
			moved, err = u.checkpoints.catchUp(ctx, add)
			return err
		})
		if err == nil {
			return moved(ctx)
		}
		if !errors.Is(err, redisset.ErrReplaced) {
			return err
		}
		if err := wait.For(ctx, retryMin); err != nil {
			return err
		}
	}
}

// readAll reads all of a table to fill the set. A nil *checkpointStore keeps no checkpoint.
func (p *checkpointStore) readAll(ctx context.Context, t *tableSource, add func(id string) error) error {
	mark, err := t.aside(ctx, add)
	if err != nil {
		return err
	}
	if p != nil && p.filled != nil {
		p.filled[t.name] = mark
	}
	return nil
}

// of returns the name of a source's checkpoint.
func (p *checkpointStore) of(t checkpointed) string {
	_, identity := t.checkpointOf()
	return p.name + "/" + identity
}

// fields returns the fields with the checkpoints of a generation.
func (p *checkpointStore) fields(generation int) (fields []string) {
	for _, t := range p.tables {
		fields = append(fields, strconv.Itoa(generation)+":"+p.of(t))
	}
	for _, f := range p.files {
		fields = append(fields, strconv.Itoa(generation)+":"+p.of(f))
	}
	return fields
}

// HasAll implements [redisset.Checkpoints].
func (p *checkpointStore) HasAll(ctx context.Context, generation int) (bool, error) {
	found, err := p.client.HMGet(ctx, p.keys[0], p.fields(generation)...).Result()
	if err != nil {
		return false, fmt.Errorf("looking for the checkpoints of the sources: %w", err)
	}
	if slices.Contains(found, nil) {
		return false, nil
	}
	for i, f := range p.files {
		text, _ := found[len(p.tables)+i].(string)
		if has, err := p.hasFile(f, text); !has {
			return false, err
		}
	}
	return true, nil
}

// filling is the field with the unique name of a filling. A reading that began before the
// filling may have added to deleted bits.
const filling = "filling"

// Discard implements [redisset.Checkpoints].
func (p *checkpointStore) Discard(ctx context.Context, generation int) (others bool, err error) {
	there, err := p.client.HKeys(ctx, p.keys[0]).Result()
	if err == nil {
		_, err = p.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Del(ctx, p.keys[0])
			tx.HSet(ctx, p.keys[0], filling, rand.Text())
			return nil
		})
	}
	if err != nil {
		return false, fmt.Errorf("discarding the checkpoints of the sources: %w", err)
	}
	mine := append(p.fields(generation), filling)
	slices.Sort(mine)
	slices.Sort(there)
	return len(there) > 0 && !slices.Equal(slices.Compact(mine), there), nil
}

// BeginFill implements [redisset.Checkpoints].
func (p *checkpointStore) BeginFill(ctx context.Context) (err error) {
	p.filled = nil
	for _, s := range p.sources()[:1] {
		if p.began, err = p.readAny(ctx, s); err != nil {
			return err
		}
	}
	p.filled = make(map[string]json.RawMessage)
	return nil
}

// Commit implements [redisset.Checkpoints].
func (p *checkpointStore) Commit(ctx context.Context, generation int) (err error) {
	for _, t := range p.sources() {
		at, failed := p.readAny(ctx, t)
		if failed != nil {
			return errors.Join(err, failed)
		}
		name, _ := t.checkpointOf()
		if at.mark == nil && at.others == p.began.others && at.generation == strconv.Itoa(generation) {
			at.history, at.filling = p.began.history, p.began.filling
			err = errors.Join(err, p.write(ctx, t, at, p.filled[name]))
		}
	}
	p.filled = nil
	return err
}

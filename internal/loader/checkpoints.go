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
)

//go:embed place.lua
var placeSource string

var placeScript = redis.NewScript(placeSource)

// checkpointStore keeps the marks up to which a set in Redis has what is in tables. Redis alone has
// them: what a restart or a failover takes from the set, it takes from them as well. So
// a mark is read before each reading, and replaced only if nothing has happened to the
// set since. Whoever fills the set gives them up before, and keeps new ones at its end. Each
// is of one generation of one set: one that another set of the filter left is not looked at.
type checkpointStore struct {
	client redis.UniversalClient
	keys   []string // the marks, the state of the set
	name   string   // tells the set from others that the filter may have
	set    *redisset.Set
	tables []*tableSource // one at least

	// Used by who fills the set only: of a process, that is one at a time.
	began  checkpoint
	filled map[string]json.RawMessage // up to where it has read
}

// place is a mark, and what else was found with it.
type checkpoint struct {
	history    string // of the server that has the mark
	generation string // of the set
	filling    string // names the last filling of it
	text       string // as it is kept; "": there is none
	others     string // servers that have a part of the set
	mark       json.RawMessage
}

// storedCheckpoint is the text of a place.
type storedCheckpoint struct {
	Mark json.RawMessage `json:"mark"`
	// Others are the histories of those servers of a cluster that have a part of the set
	// and not the mark: that of one that comes back with less is another.
	Others string `json:"others,omitempty"`
}

// read returns how far a table is in the set. What is added to the set after that is
// added to the generation that it names.
func (p *checkpointStore) read(ctx context.Context, t *tableSource) (checkpoint, error) {
	at, err := p.look(ctx, t)
	if err == nil {
		err = p.sameGeneration(ctx, at)
	}
	return at, err
}

func (p *checkpointStore) look(ctx context.Context, t *tableSource) (at checkpoint, err error) {
	if at.others, err = p.set.OtherServers(ctx); err != nil {
		return at, fmt.Errorf("source %s: %w", t.name, err)
	}
	if err := p.run(ctx, &at, p.of(t)); err != nil {
		return at, fmt.Errorf("source %s: reading its place: %w", t.name, err)
	}
	var kept storedCheckpoint
	// What is no place, or one of a set that has lost something, has all of the table be
	// read.
	if json.Unmarshal([]byte(at.text), &kept) == nil && kept.Others == at.others {
		at.mark = kept.Mark
	}
	return at, nil
}

// errGeneration passes: the set is just being replaced.
var errGeneration = errors.New("the set in Redis is of another generation")

func (p *checkpointStore) sameGeneration(ctx context.Context, at checkpoint) error {
	switch now, err := p.set.Generation(ctx); {
	case err != nil:
		return err
	case strconv.Itoa(now) != at.generation:
		return errGeneration
	}
	return nil
}

// run calls the script, which sets what it returns.
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

// write replaces a place by what has been added to the set since it was read. It does
// nothing if something else has happened to it, or somebody has been faster.
func (p *checkpointStore) write(ctx context.Context, t *tableSource, at checkpoint, mark json.RawMessage) error {
	switch others, err := p.set.OtherServers(ctx); {
	case err != nil:
		return fmt.Errorf("source %s: %w", t.name, err)
	case others != at.others:
		return nil
	}
	text, err := json.Marshal(storedCheckpoint{mark, at.others})
	if err != nil {
		return fmt.Errorf("source %s: its place: %w", t.name, err)
	}
	if string(text) == at.text {
		return nil
	}
	if err := p.run(ctx, &checkpoint{}, p.of(t), at.history, at.generation, at.filling, at.text, string(text)); err != nil {
		return fmt.Errorf("source %s: keeping its place: %w", t.name, err)
	}
	return nil
}

// catchUp adds to the set, by add, what may be new in the tables. The places move when
// moved is called, which is to be done once everything has been added.
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
	return func(ctx context.Context) (err error) {
		for _, move := range all {
			err = errors.Join(err, move(ctx))
		}
		return err
	}, nil
}

// unreadBySet is what of the tables is not in the set in Redis yet, as a source.
type unreadBySet struct{ *Loader }

// IDs implements filter.Source. It yields nothing: the IDs are added to the set.
func (u unreadBySet) IDs(ctx context.Context, _ func(id string) error) error {
	return u.catchUpSet(ctx, u.filter.Include)
}

// catchUpSet adds to the set in Redis what may be new in the tables, and then moves the
// places. It waits until the set is whole: whoever fills it reads all of the tables. Take is
// a method of the filter that takes a reading.
func (u *Loader) catchUpSet(ctx context.Context, take func(context.Context, func(context.Context, func(string) error) error) error) error {
	if err := u.set.AwaitComplete(ctx); err != nil {
		return err
	}
	moved := func(context.Context) error { return nil }
	err := take(ctx, func(ctx context.Context, add func(id string) error) (err error) {
		moved, err = u.checkpoints.catchUp(ctx, add)
		return err
	})
	if err != nil {
		return err
	}
	return moved(ctx)
}

// readAll reads all of a table, for who fills the set. A nil *checkpointStore keeps no place.
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

// of names the place of a table.
func (p *checkpointStore) of(t *tableSource) string { return p.name + "/" + t.identity }

// fields returns where the places of a generation are.
func (p *checkpointStore) fields(generation int) (fields []string) {
	for _, t := range p.tables {
		fields = append(fields, strconv.Itoa(generation)+":"+p.of(t))
	}
	return fields
}

// Has implements [redisset.Places].
func (p *checkpointStore) HasAll(ctx context.Context, generation int) (bool, error) {
	found, err := p.client.HMGet(ctx, p.keys[0], p.fields(generation)...).Result()
	if err != nil {
		return false, fmt.Errorf("looking for the places in the tables: %w", err)
	}
	return !slices.Contains(found, nil), nil
}

// filling is the field of a name that is another one for each filling: whoever read a place
// before may have added to bits that are gone.
const filling = "filling"

// GiveUp implements [redisset.Places].
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
		return false, fmt.Errorf("giving up the places in the tables: %w", err)
	}
	mine := append(p.fields(generation), filling)
	slices.Sort(mine)
	slices.Sort(there)
	return len(there) > 0 && !slices.Equal(slices.Compact(mine), there), nil
}

// Begin implements [redisset.Places].
func (p *checkpointStore) BeginFill(ctx context.Context) (err error) {
	p.filled = nil
	if p.began, err = p.look(ctx, p.tables[0]); err != nil {
		return err
	}
	p.filled = make(map[string]json.RawMessage)
	return nil
}

// End implements [redisset.Places].
func (p *checkpointStore) Commit(ctx context.Context, generation int) (err error) {
	for _, t := range p.tables {
		at, failed := p.look(ctx, t)
		if failed != nil {
			return errors.Join(err, failed)
		}
		if at.mark == nil && at.others == p.began.others && at.generation == strconv.Itoa(generation) {
			at.history, at.filling = p.began.history, p.began.filling
			err = errors.Join(err, p.write(ctx, t, at, p.filled[t.name]))
		}
	}
	p.filled = nil
	return err
}

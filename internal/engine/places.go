package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
)

// places are the places in tables up to which a set in Redis has what is there. They
// are kept beside the set: whoever fills it writes them, and whoever catches up.
type places struct {
	client redis.UniversalClient
	key    string
}

// read has a table begin where the set ends, unless it is known to be further.
func (p *places) read(ctx context.Context, t *tableSource) error {
	if !t.reached().Zero() {
		return nil
	}
	place, err := p.place(ctx, t)
	if err != nil {
		return err
	}
	if err := t.from(place); !errors.Is(err, errMoved) {
		return err
	}
	return t.from(nil) // all of the table is read
}

// place returns what is kept of a table, nil if there is nothing.
func (p *places) place(ctx context.Context, t *tableSource) (json.RawMessage, error) {
	text, err := p.client.HGet(ctx, p.key, t.name).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("source %s: reading its place: %w", t.name, err)
	}
	return json.RawMessage(text), nil
}

// readMoved reads all of the tables that the set in Redis was not filled from, into that:
// they are elsewhere since, or are sources since. Until it has returned nil, the set proves
// nothing.
func (u *filterUnit) readMoved(ctx context.Context, log *slog.Logger) error {
	if u.places == nil {
		return nil
	}
	var moved []*tableSource
	for _, t := range u.live() {
		place, err := u.places.place(ctx, t)
		if err != nil {
			return err
		}
		_, reason := t.parse(place)
		if place == nil {
			// A set that is not whole is going to be filled from all tables.
			whole, err := u.shared.Whole(ctx)
			if err != nil {
				return err
			}
			if whole {
				reason = errMoved
			}
		}
		if errors.Is(reason, errMoved) {
			log.Warn("the set in Redis was not filled from a table, which is read as a whole", "source", t.name)
			moved = append(moved, t)
		}
	}
	if moved == nil {
		return nil
	}
	err := u.filter.Reload(ctx, func(ctx context.Context, add func(id string) error) error {
		into, flush := u.readInto(ctx, config.Filter{}, add)
		for _, t := range moved {
			if err := t.IDs(ctx, into); err != nil {
				return err
			}
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return u.places.write(ctx, moved)
}

func (p *places) write(ctx context.Context, tables []*tableSource) error {
	for _, t := range tables {
		if err := p.client.HSet(ctx, p.key, t.name, string(t.place())).Err(); err != nil {
			return fmt.Errorf("source %s: keeping its place: %w", t.name, err)
		}
	}
	return nil
}

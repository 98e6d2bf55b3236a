package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
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
	text, err := p.client.HGet(ctx, p.key, t.name).Result()
	if errors.Is(err, redis.Nil) {
		return nil // all of the table is read
	}
	if err != nil {
		return fmt.Errorf("source %s: reading its place: %w", t.name, err)
	}
	return t.from(json.RawMessage(text))
}

func (p *places) write(ctx context.Context, tables []*tableSource) error {
	for _, t := range tables {
		if err := p.client.HSet(ctx, p.key, t.name, string(t.place())).Err(); err != nil {
			return fmt.Errorf("source %s: keeping its place: %w", t.name, err)
		}
	}
	return nil
}

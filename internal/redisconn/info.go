package redisconn

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Info returns what each server of a client says of itself (INFO), by its name. The error is of the
// last server that did not answer.
func Info(ctx context.Context, client redis.UniversalClient) (map[string]string, error) {
	infos := make(map[string]string)
	var mu sync.Mutex
	var last error
	read := func(ctx context.Context, server *redis.Client) error {
		text, err := server.Info(ctx, "all").Result()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			last = Explain(err)
			return nil
		}
		infos[serverName(server)] = text
		return nil
	}
	switch c := client.(type) {
	case *redis.ClusterClient:
		if err := c.ForEachShard(ctx, read); err != nil {
			last = Explain(err)
		}
	case *redis.Client:
		_ = read(ctx, c) // it returns nil
	}
	return infos, last
}

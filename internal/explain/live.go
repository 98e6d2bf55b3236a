package explain

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// LockState is the state of a lock that Redis reports now.
type LockState struct {
	Key     string         `json:"key"`
	Server  *string        `json:"server"`       // of a quorum; null: the lock has a single server
	State   string         `json:"state"`        // free, held, other_type (no lock of this kind), unreachable
	Left    *admin.Seconds `json:"left_seconds"` // null: not held, or it does not expire
	Holders []string       `json:"holders"`      // the beginnings of the owners: a client can present a whole owner as its lease
	Free    *int           `json:"free"`         // free permits; null: not a semaphore
	Error   *string        `json:"error"`

	foreign string // the value of the key, if it is not a lock of this kind
}

// ReadRedis reads from Redis what --live shows. It blocks for at most redisconn.Timeout, 1 s.
func (e *Explanation) ReadRedis(ctx context.Context, c *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, redisconn.Timeout)
	defer cancel()
	e.Live = lockStates(ctx, c, e)
	return e.readOnce(ctx, c)
}

// lockStates reads the locks that a request takes.
func lockStates(ctx context.Context, c *config.Config, e *Explanation) []LockState {
	states := []LockState{}
	if e.OnceKey != nil {
		states = append(states, readLocks(ctx, c, e.rule.KeyLock(), []string{*e.OnceKey})...)
	}
	if len(e.LockKeys) > 0 {
		states = append(states, readLocks(ctx, c, c.Locks[e.rule.OrderLock()], e.LockKeys)...)
	}
	if e.LimitKey != nil {
		states = append(states, readLocks(ctx, c, c.Locks[e.settle.Limit.Lock], []string{*e.LimitKey})...)
	}
	return states
}

// readLocks reads locks of one kind from each of their servers.
func readLocks(ctx context.Context, c *config.Config, lock config.Lock, keys []string) (states []LockState) {
	if lock.Kind != config.LockQuorum {
		return readServer(ctx, c.Redis, lock, nil, keys)
	}
	for _, address := range lock.Quorum.Addresses {
		states = append(states, readServer(ctx, redisconn.QuorumServer(c.Redis, address), lock, &address, keys)...)
	}
	return states
}

func readServer(ctx context.Context, server *config.Redis, lock config.Lock, name *string, keys []string) []LockState {
	states := make([]LockState, len(keys))
	for i, key := range keys {
		states[i] = LockState{Key: key, Server: name, Holders: []string{}}
	}
	if err := readStates(ctx, server, lock, states); err != nil {
		for i := range states {
			states[i].State, states[i].Error = lockreport.StateUnreachable, new(err.Error())
		}
	}
	return states
}

func readStates(ctx context.Context, server *config.Redis, lock config.Lock, states []LockState) error {
	if server.Mode == config.RedisEmbedded {
		return errEmbedded
	}
	client, closeClient, err := redisconn.Connect(ctx, server, 0)
	if err != nil {
		return err
	}
	defer closeClient()
	for i := range states {
		if err := states[i].read(ctx, client, lock); err != nil {
			return err
		}
	}
	return nil
}

func (s *LockState) read(ctx context.Context, client redis.UniversalClient, lock config.Lock) error {
	kind := lockreport.KindOf(lock)
	is, err := redislock.Inspect(ctx, client, kind, redislock.Format(lock.Format), s.Key)
	if err != nil {
		return err
	}
	s.State, s.foreign = lockreport.StateFree, is.Foreign
	switch {
	case is.Foreign != "":
		s.State = lockreport.StateOther
	case is.Held():
		s.State = lockreport.StateHeld
	}
	if is.Foreign == "" && kind == redislock.Semaphore {
		s.Free = new(is.Free)
		if is.TTL == 0 { // no client has taken a permit yet
			s.Free = new(lock.Permits)
		}
	}
	if is.TTL > 0 && s.State != lockreport.StateFree {
		s.Left = new(admin.SecondsOf(is.TTL))
	}
	for _, h := range is.Holders {
		s.Holders = append(s.Holders, admin.Visible(h.Owner[:min(len(h.Owner), lockreport.ShownOwner)]))
	}
	return nil
}

// String describes the state in one line.
func (s LockState) String() string {
	where := s.Key
	if s.Server != nil {
		where += " on " + *s.Server
	}
	left := "without an end"
	if s.Left != nil {
		left = fmt.Sprintf("%s left", *s.Left)
	}
	by := strings.Join(s.Holders, "..., ") + "..."
	switch {
	case s.State == lockreport.StateUnreachable:
		return where + ": store not reachable: " + *s.Error
	case s.State == lockreport.StateOther:
		return where + ": held by something else, " + s.foreign + ", " + left
	case s.Free != nil && len(s.Holders) > 0:
		return fmt.Sprintf("%s: held by %s, permits left: %d", where, by, *s.Free)
	case s.Free != nil:
		return fmt.Sprintf("%s: %s, permits left: %d", where, s.State, *s.Free)
	case s.State == lockreport.StateHeld:
		return fmt.Sprintf("%s: held by %s, %s", where, by, left)
	}
	return where + ": free"
}

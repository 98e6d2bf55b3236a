package redisset

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/runbook"
)

// serverIDs are the replication IDs of servers. A server has another one after each start and
// each failover: then it may have lost acknowledged writes.
type serverIDs struct {
	state  string // of the server with the state of the set; "" if it does not show one
	others string // of the other servers of a cluster; sorted, each once
}

// OtherServers returns the replication IDs of the servers that have a part of the set, but not
// its state. It is "" if one server has everything. In a cluster it takes a round trip.
func (s *Set) OtherServers(ctx context.Context) (string, error) {
	if _, ok := s.client.(*redis.ClusterClient); !ok {
		return "", nil
	}
	h, err := s.serverIDs(ctx)
	return h.others, err
}

// serverIDs reads the replication IDs of all servers that have a part of the set, of any known
// generation.
func (s *Set) serverIDs(ctx context.Context) (h serverIDs, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		h.state, err = replicationID(ctx, s.client)
		return h, err
	}
	own, err := cluster.MasterForKey(ctx, s.key)
	if err != nil {
		return h, fmt.Errorf("finding the server of %s: %w", s.key, err)
	}
	if h.state, err = replicationID(ctx, own); err != nil {
		return h, err
	}
	v, err := s.freshView(ctx)
	if err != nil {
		return h, err
	}
	seen, others := map[*redis.Client]bool{own: true}, []string(nil)
	for _, t := range v.all() {
		sets, err := t.sets()
		if err != nil {
			return h, err
		}
		for _, set := range sets {
			for _, key := range set.Keys() {
				node, err := cluster.MasterForKey(ctx, key)
				if err != nil {
					return h, fmt.Errorf("finding the server of %s: %w", key, err)
				}
				if seen[node] {
					continue
				}
				seen[node] = true
				name, err := replicationID(ctx, node)
				if err != nil {
					return h, err
				}
				others = append(others, name)
			}
		}
	}
	slices.Sort(others)
	h.others = strings.Join(others, ",")
	return h, nil
}

var replicationIDLine = regexp.MustCompile(`(?m)^master_replid:([0-9a-f]+)`)

// replicationID returns "" for a server that does not show it. The follower of the change log
// makes every miss Unknown there.
func replicationID(ctx context.Context, client redis.Cmdable) (string, error) {
	text, err := client.Info(ctx, "replication").Result()
	if err != nil {
		if _, answered := errors.AsType[redis.Error](err); answered {
			return "", nil
		}
		return "", fmt.Errorf("reading a server's replication ID: %w", err)
	}
	if found := replicationIDLine.FindStringSubmatch(text); found != nil {
		return found[1], nil
	}
	return "", nil
}

// detectRestart detects that another server has a part of the set than at the last check.
func (s *Set) detectRestart(ctx context.Context) error {
	if s.opts.Checkpoints == nil {
		return nil
	}
	others, err := s.OtherServers(ctx)
	if err != nil {
		return err
	}
	if s.otherServers != nil && *s.otherServers != others {
		s.requestReread("a server with a part of the filter in Redis was restarted or failed over")
	}
	s.otherServers = &others
	return nil
}

// noCheckpoints is the reason that a complete set proves nothing.
const noCheckpoints = "the filter in Redis lacks what was loaded from a source, which is read again"

// requestReread requests a reload of the sources, until the set has all checkpoints.
func (s *Set) requestReread(reason string) {
	if reason != s.rereadReason {
		s.log.Warn(reason,
			runbook.FilterNotReady.Do("nothing: ordergate reads its sources again"))
	}
	s.rereadReason = reason
	s.opts.OnIncomplete(reason)
}

// ErrReplaced says that a set is of another generation, or has other forms of IDs. It is temporary:
// after AwaitComplete there is another set.
var ErrReplaced = errors.New("the filter in Redis is being replaced")

// Generation returns the generation in use, as of a refresh that begins now. A later Add goes
// to it. For a set with other forms of IDs the error is ErrReplaced.
func (s *Set) Generation(ctx context.Context) (int, error) {
	v, err := s.refresh(ctx)
	if err != nil {
		return 0, err
	}
	if v.Forms != "" && s.hasOtherForms(v) {
		return 0, ErrReplaced
	}
	return v.Generation, nil
}

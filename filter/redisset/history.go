package redisset

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// histories are the names of the histories of servers. A server has another one after
// each start and each failover: either may have lost what was acknowledged before.
type serverIDs struct {
	state  string // of the server that has the state of the set; "" where it is not told
	others string // of those of a cluster that have the rest of the set; sorted, each once
}

// Others names the histories of the servers which have a part of the set, and not its
// state. It is "" where all is on one server, and takes a round trip in a cluster.
func (s *Set) OtherServers(ctx context.Context) (string, error) {
	if _, ok := s.client.(*redis.ClusterClient); !ok {
		return "", nil
	}
	h, err := s.serverIDs(ctx)
	return h.others, err
}

// histories asks all servers that have a part of the set, of any generation that is known.
func (s *Set) serverIDs(ctx context.Context) (h serverIDs, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		h.state, err = replicationID(ctx, s.client)
		return h, err
	}
	own, err := cluster.MasterForKey(ctx, s.key)
	if err != nil {
		return h, fmt.Errorf("looking for the server of %s: %w", s.key, err)
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
					return h, fmt.Errorf("looking for the server of %s: %w", key, err)
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

// history returns "" of a server that does not tell. Who follows the change log has
// nothing be absent there.
func replicationID(ctx context.Context, client redis.Cmdable) (string, error) {
	text, err := client.Info(ctx, "replication").Result()
	if err != nil {
		if _, answered := errors.AsType[redis.Error](err); answered {
			return "", nil
		}
		return "", fmt.Errorf("asking a server for its history: %w", err)
	}
	if found := replicationIDLine.FindStringSubmatch(text); found != nil {
		return found[1], nil
	}
	return "", nil
}

// watch notices when another server has a part of the set than at the last look.
func (s *Set) detectRestart(ctx context.Context) error {
	if s.opts.Checkpoints == nil {
		return nil
	}
	others, err := s.OtherServers(ctx)
	if err != nil {
		return err
	}
	if s.otherServers != nil && *s.otherServers != others {
		s.requestReread("a server that has a part of the set in Redis was restarted or failed over")
	}
	s.otherServers = &others
	return nil
}

// lackingPlaces is why a set proves nothing that is whole.
const noCheckpoints = "the set in Redis was not filled from a table, which is read as a whole"

// lacks has the sources read, until the set has all places.
func (s *Set) requestReread(reason string) {
	if reason != s.rereadReason {
		s.log.Warn(reason)
	}
	s.rereadReason = reason
	s.opts.OnIncomplete(reason)
}

// errForms passes: the set is going to be filled again.
var errOtherForms = errors.New("the set in Redis was filled with other forms of IDs")

// Generation returns the generation that is asked, as of a look at Redis that begins now.
// What is added after that is added to it.
func (s *Set) Generation(ctx context.Context) (int, error) {
	v, err := s.refresh(ctx)
	if err != nil {
		return 0, err
	}
	if v.Forms != "" && s.hasOtherForms(v) {
		return 0, errOtherForms
	}
	return v.Generation, nil
}

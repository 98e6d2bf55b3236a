package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func (s *setSearch) pick() *liveSet {
	if len(s.lives) == 0 {
		return nil
	}
	return s.lives[s.random.IntN(len(s.lives))]
}

func (s *setSearch) anySetting() setting {
	r, all := s.random, settingsOfSearch
	how, kinds := setting{capacity: s.capacity}, all.kinds
	if s.dated {
		kinds = all.dated
	}
	if r.IntN(6) == 0 {
		how.capacity *= 2
	}
	how.setKind = kinds[0]
	if r.IntN(2) == 0 {
		how.setKind = kinds[r.IntN(len(kinds))]
	}
	how.sources = all.sources[2]
	if r.IntN(2) == 0 {
		how.sources = all.sources[r.IntN(len(all.sources))]
	}
	how.format = all.formats[min(1, r.IntN(6)/5)]
	if s.dated {
		how.format = config.FormatTimestamped
	}
	return how
}

// insert begins an order by an ordergate.
func (s *setSearch) insert(table string, by *liveSet) lateOrder {
	s.next++
	id := fmt.Sprintf("ABCDEF00-0000-4000-8000-%012d", s.next)
	if s.dated {
		at := time.Now()
		if by != nil {
			at = by.now()
		}
		id = at.UTC().Format(dateOfSearch) + fmt.Sprintf("%06d", s.next)
	}
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	bedtest.Check(s.t, err)
	_, err = tx.ExecContext(s.t.Context(), "INSERT INTO "+table+s.suffix+" (id) VALUES ('"+id+"')")
	bedtest.Check(s.t, err)
	return lateOrder{setOrder: setOrder{id, table}, tx: tx, began: time.Now(), by: by}
}

// commit ends one, and has it learned, or its ordergate killed.
func (s *setSearch) commit(o lateOrder) {
	if time.Since(o.began) > searchOverlap/4 {
		bedtest.Check(s.t, o.tx.Rollback())
		return
	}
	bedtest.Check(s.t, o.tx.Commit())
	s.say("%s is committed in %s", o.id, o.table)
	if !slices.Contains(s.lives, o.by) {
		s.mu.Lock()
		s.doubt("created by one that ended")
		s.mu.Unlock()
		s.orders = append(s.orders, o.setOrder)
		return
	}
	if s.random.IntN(4) == 0 {
		s.stop(o.by, true)
		s.orders = append(s.orders, o.setOrder)
		return
	}
	if err := o.by.loader.filter.Learn(s.t.Context(), o.id); !errors.Is(err, filter.ErrExposed) {
		s.orders = append(s.orders, o.setOrder)
	}
}

func (s *setSearch) keys() []string {
	keys, err := s.client.Keys(s.t.Context(), "*").Result()
	bedtest.Check(s.t, err)
	slices.Sort(keys)
	return keys
}

// act does one thing.
func (s *setSearch) act() {
	ctx, r := s.t.Context(), s.random
	switch n := r.IntN(29); n {
	case 0, 1, 2, 3, 4:
		if l := s.pick(); l != nil {
			table := strings.Replace(l.setting.sources[r.IntN(len(l.setting.sources))], "c", "a", 1)
			o := s.insert(table, l)
			if r.IntN(3) == 0 {
				s.late = append(s.late, o)
			} else {
				s.commit(o)
			}
		}
	case 5, 6:
		if len(s.late) > 0 {
			o := s.late[0]
			s.late = s.late[1:]
			s.commit(o)
		}
	case 7, 8, 9:
		if len(s.lives) < 3 {
			s.start(s.anySetting())
		}
	case 10, 11:
		if l := s.pick(); l != nil {
			s.stop(l, r.IntN(2) == 0)
		}
	case 12, 13:
		keys := s.keys()
		if len(keys) == 0 {
			return
		}
		key := keys[r.IntN(len(keys))]
		s.say("DEL %s", key)
		bedtest.Check(s.t, s.client.Del(ctx, key).Err())
	case 14:
		s.say("FLUSHALL")
		s.mu.Lock()
		bedtest.Check(s.t, s.client.FlushAll(ctx).Err())
		s.log = nil
		s.doubt("flushed")
		s.mu.Unlock()
	case 15:
		s.mu.Lock()
		s.dump, s.dumpedAt = make(map[string]string), len(s.log)
		keys := s.keys()
		cmds, err := s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			for _, key := range keys {
				tx.Dump(ctx, key)
			}
			return nil
		})
		for i, cmd := range cmds {
			if text, err := cmd.(*redis.StringCmd).Result(); err == nil {
				s.dump[keys[i]] = text
			}
		}
		_ = err // a key that has just been dropped
		s.mu.Unlock()
		s.say("dump of %d keys", len(s.dump))
	case 16:
		if s.dump == nil {
			return
		}
		s.say("failover to what was dumped")
		bedtest.Check(s.t, s.client.ConfigSet(ctx, "maxmemory", "0").Err())
		s.mu.Lock()
		_, err := s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Do(ctx, "DEBUG", "CHANGE-REPL-ID")
			tx.FlushAll(ctx)
			for key, text := range s.dump {
				tx.RestoreReplace(ctx, key, 0, text)
			}
			return nil
		})
		bedtest.Check(s.t, err)
		s.log = s.log[:min(s.dumpedAt, len(s.log))]
		s.doubt("failed over")
		s.mu.Unlock()
	case 17:
		if l := s.pick(); l != nil {
			n := int32(r.IntN(40))
			s.say("%s: %d%% of its commands fail", l.name, n)
			l.fails.Store(n)
		}
	case 18:
		full := strconv.Itoa(r.IntN(2))
		s.say("maxmemory %s", full)
		bedtest.Check(s.t, s.client.ConfigSet(ctx, "maxmemory", full).Err())
	case 19:
		if lost := s.lose.Load(); lost != nil {
			s.say("a turn is lost")
			(*lost)(errLeaseLost)
		}
	case 20:
		s.say("the log is trimmed")
		s.mu.Lock()
		s.log = s.log[len(s.log)/2:]
		s.dumpedAt = 0
		s.mu.Unlock()
	case 21:
		if l := s.pick(); l != nil && l.setting.kind != config.FilterRedisson {
			s.say("%s: expand", l.name)
			l.wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				_ = l.loader.set.Expand(ctx)
			})
		}
	case 22, 23:
		if l := s.pick(); l != nil {
			s.say("%s: load", l.name)
			l.wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				_, _, _ = l.loader.Reload(ctx, "")
			})
		}
	case 24, 28:
		if l := s.pick(); l != nil {
			s.say("%s: trust", l.name)
			l.wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				_ = l.loader.set.Trust(ctx, nil)
			})
		}
	case 25:
		key := "ordergate:{orders}:" + []string{"state", "places", "secret"}[r.IntN(3)]
		s.say("DEL %s", key)
		bedtest.Check(s.t, s.client.Del(ctx, key).Err())
	case 26, 27:
		s.pass()
	}
}

// pass has a day pass, by one clock after the other.
func (s *setSearch) pass() {
	if !s.dated {
		return
	}
	behind := slices.DeleteFunc(slices.Clone(s.lives), func(l *liveSet) bool { return l.days.Load() == s.days })
	if len(behind) == 0 {
		s.days++
		behind = s.lives
	}
	if len(behind) > 0 {
		l := behind[s.random.IntN(len(behind))]
		s.say("%s: day %d", l.name, s.days)
		l.days.Store(s.days)
	}
}

package engine

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
)

// LoadReport tells what was loaded.
type LoadReport struct {
	Filter   string  `json:"filter"`
	IDs      int64   `json:"ids"` // read
	Took     Seconds `json:"took_seconds"`
	State    string  `json:"state"`
	Reason   string  `json:"reason"`
	Snapshot *string `json:"snapshot"` // that was written; null: none
}

// Announce tells every ordergate of IDs of a filter, by its change log: all know them after
// [Engine.Spread]. It needs a Redis, and no Start. After an error some may be known.
func (m *Engine) Announce(ctx context.Context, filter string, ids []string) error {
	u := m.filters[filter]
	return announce(ctx, u.log, u.shared, ids)
}

// Spread blocks until no ordergate answers Absent for what was announced before the call.
func (m *Engine) Spread(ctx context.Context, filter string) error {
	return m.filters[filter].log.WaitForPeers(ctx)
}

// announce appends IDs to a change log, and then to the set in Redis if there is one.
func announce(ctx context.Context, log *changelog.Log, set *redisset.Set, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if err := log.Record(ctx, ids...); err != nil || set == nil {
		return err
	}
	return set.Add(ctx, ids...)
}

// LoadSnapshot loads a filter in this process, and writes its snapshot. It blocks for as
// long as the sources take.
func LoadSnapshot(ctx context.Context, c *config.Config, name string, log *slog.Logger) (*LoadReport, error) {
	if c.Redis != nil {
		// Another place than that of the ordergate which is to start from it.
		c.Redis.Member = "load " + strconv.Itoa(os.Getpid())
	}
	m, err := New(ctx, c, "", log)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	began := time.Now()
	unit := m.filters[name]
	following, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if unit.log != nil {
			_ = unit.log.Run(following)
		}
	}()
	defer func() { cancel(); <-done }()
	unit.acquaint(ctx)
	unit.logSnapshot.waive(ctx)
	unit.outlastThose(ctx) // after waive: the log may have brought doubts by then
	unit.snapshots.loads()
	err = unit.believe(ctx, func(ctx context.Context, _ func(string) error) error {
		return unit.filter.Load(ctx, unit.sources...)
	})
	if err != nil {
		return nil, err
	}
	if unit.log != nil {
		if err := unit.log.Wait(ctx); err != nil {
			return nil, err
		}
	}
	info, err := unit.snapshots.now(ctx)
	if err != nil {
		return nil, err
	}
	return &LoadReport{Filter: name, IDs: int64(info.IDs), Took: SecondsOf(time.Since(began)), Snapshot: &info.Path}, nil
}

// serveLoad reads sources again, for an operator who says that they are up to date. One of
// several says nothing of the orders in the others.
func (m *Engine) serveLoad(r *http.Request, name string) (any, error) {
	unit, began, from := m.filters[name], time.Now(), r.URL.Query().Get("source")
	var read int64
	reload := unit.believe
	if from != "" && len(unit.sources) > 1 {
		reload = unit.filter.Include
	} else {
		unit.logSnapshot.waive(r.Context()) // a doubt that comes of it is from before the reading
	}
	unit.outlastThose(r.Context()) // after waive: the log may have brought doubts by then
	err := reload(r.Context(), func(ctx context.Context, add func(id string) error) error {
		into, flush := unit.readInto(ctx, m.config.Filters[name], add)
		counted := func(id string) error { read++; return into(id) }
		for i, s := range unit.sources {
			if from != "" && m.config.Filters[name].Sources[i] != from {
				continue
			}
			if err := s.IDs(ctx, counted); err != nil {
				return err
			}
		}
		return flush()
	})
	if err != nil {
		return nil, err
	}
	report := &LoadReport{Filter: name, IDs: read, Took: SecondsOf(time.Since(began))}
	report.State, report.Reason = unit.filter.State()
	return report, nil
}

// readInto returns what adds IDs of sources: to memory and, by add, to the set in Redis,
// or to that alone, where memory is for what comes by the change log.
func (u *filterUnit) readInto(ctx context.Context, c config.Filter, add func(string) error) (into func(string) error, flush func() error) {
	if u.shared == nil || c.Kind == config.FilterLayered {
		return add, func() error { return nil }
	}
	batch := make([]string, 0, AddedAtOnce)
	flush = func() error {
		if len(batch) == 0 {
			return nil
		}
		err := u.shared.Add(ctx, batch...)
		batch = batch[:0]
		return err
	}
	return func(id string) error {
		if batch = append(batch, strings.Clone(id)); len(batch) < AddedAtOnce {
			return nil
		}
		return flush()
	}, flush
}

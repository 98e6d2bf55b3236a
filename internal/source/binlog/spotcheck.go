package binlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source/follow"
)

const (
	spotEvery    = time.Minute      // between two IDs
	spotPatience = 10 * time.Second // a row is visible so long after it was logged
	spotMissing  = 3                // IDs in a row
)

// spotCheck looks IDs of the log up in the table: the first one, and then one a minute. A decoder that
// yields other values than the rows have would teach wrong orders without an error.
//
// An ID is missing if the table does not have it for some time, and the log up to then has nothing
// that may have removed it. One missing ID proves nothing: the log does not show rows that the cascade
// of a foreign key deletes. It is for one goroutine, except the channels.
type spotCheck struct {
	ask     chan []string
	answers chan spotAnswer

	id      *spotID // that is looked up; nil: none
	latest  *spotID // since that one; nil: none
	due     time.Time
	asked   bool
	answer  *spotAnswer
	missing int  // IDs in a row
	proved  bool // an ID was found
}

// spotID is an ID that the log has.
type spotID struct {
	texts   []string // of its columns
	since   time.Time
	removed bool // the log shows that rows may have lost their IDs since
}

// spotAnswer is whether the table had the ID, before the log's end.
type spotAnswer struct {
	found bool
	end   logEnd
	err   error
}

func newSpotCheck() *spotCheck {
	return &spotCheck{ask: make(chan []string), answers: make(chan spotAnswer)}
}

// take notes an ID that the log has. It is looked up if one is due, or if the one before is missing.
func (s *spotCheck) take(texts []string) {
	place := &s.id
	if s.id != nil {
		place = &s.latest
	}
	if now := time.Now(); *place == nil && !now.Before(s.due) || *place != nil && (*place).removed {
		*place = &spotID{texts: slices.Clone(texts), since: now}
	}
}

// remove notes that rows may have lost their IDs.
func (s *spotCheck) remove() {
	for _, id := range []*spotID{s.id, s.latest} {
		if id != nil {
			id.removed = true
		}
	}
}

// restart begins a connection. Without an index no ID is looked up.
func (s *spotCheck) restart(indexed bool) {
	if s.asked, s.answer = false, nil; !indexed {
		s.id, s.latest, s.missing = nil, nil, 0
	}
}

// drop ends the look at an ID.
func (s *spotCheck) drop(pause time.Duration) {
	s.id, s.latest, s.due = nil, nil, time.Now().Add(pause)
}

// doubtful reports whether no ID was found yet, and one is missing or is looked up.
func (s *spotCheck) doubtful() bool { return !s.proved && (s.id != nil || s.missing > 0) }

// newSpotClient returns a client that looks IDs up. It keeps no connection, and does not wait for locks.
func (f *Follower) newSpotClient() (*serverClient, error) {
	config := f.config.Clone()
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["lock_wait_timeout"] = "1" // second
	client, err := newServerClient(config)
	if err == nil {
		client.db.SetMaxIdleConns(0)
	}
	return client, err
}

// lookUp answers questions until ctx ends.
func (r *tailer) lookUp(ctx context.Context) {
	for {
		select {
		case texts := <-r.spot.ask:
			limited, cancel := context.WithTimeout(ctx, timeout)
			var a spotAnswer
			a.found, a.err = r.spotClient.has(limited, &r.layout, r.server, texts)
			if a.err == nil {
				a.end, a.err = r.spotClient.logEnd(limited, r.server.flavor)
			}
			cancel()
			select {
			case r.spot.answers <- a:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// has reports whether the table has an ID.
func (a *serverClient) has(ctx context.Context, l *layout, s server, texts []string) (found bool, err error) {
	var conditions []string
	for i, c := range l.ids {
		value := fmt.Sprintf("_utf8mb4 X'%x'", texts[i]) // in any character set of the connection
		if c.bits > 0 {
			value = texts[i] // digits
		} else if !c.text {
			value = "CAST(" + value + " AS DECIMAL(65,0))"
		}
		conditions = append(conditions, quote(c.name)+" = "+value)
	}
	var name string
	err = a.db.QueryRowContext(ctx, "SELECT "+serverNameSQL(s.flavor)+", EXISTS (SELECT 1 FROM "+quote(l.table.schema)+"."+quote(l.table.name)+
		" WHERE "+strings.Join(conditions, " AND ")+")").Scan(&name, &found)
	if err == nil && name != s.name {
		err = fmt.Errorf("server %s answers, after %s did", name, s.name)
	}
	return found, err
}

// requestLookup asks for the ID that is looked up.
func (r *tailer) requestLookup() {
	if r.spot.id == nil || r.spot.asked {
		return
	}
	select {
	case r.spot.ask <- r.spot.id.texts:
		r.spot.asked = true
	default: // lookUp has not begun, or passes an answer on
	}
}

// judge applies an answer, once the log was read up to its end.
func (r *tailer) judge() error {
	s := r.spot
	if s.answer == nil || r.tx.open() || s.answer.err == nil && !r.reached(s.answer.end) {
		return nil
	}
	a, since := *s.answer, time.Since(s.id.since)
	s.answer, s.asked = nil, false
	switch {
	case a.err != nil:
		r.log.Debug("an ID of the log was not looked up", "error", follow.OneLine(a.err))
		s.drop(r.spotEvery)
	case a.found:
		s.missing, s.proved = 0, true
		s.drop(r.spotEvery)
	case s.id.removed:
		s.drop(r.spotPatience) // another one may stay
	case since >= r.spotPatience:
		s.missing++
		s.id, s.latest, s.due = s.latest, nil, time.Time{}
		r.log.Warn("the table does not have an ID of its database's log", "table", r.layout.table.String(), "in_a_row", s.missing,
			runbook.MariaDB.Do("nothing if it was deleted at once; if it recurs, use follow: poll"))
		if s.missing == spotMissing {
			return follow.Permanent(fmt.Errorf("%w, of the last %d that were looked up: column %s is read wrongly, or rows are deleted at once by a foreign key; use follow: poll",
				follow.ErrWrong, spotMissing, r.opts.IDColumn))
		}
	case since >= r.spotPatience/10 && s.doubtful():
		r.opts.OnBusy(fmt.Errorf("the table does not have an ID that its database's log has in column %s, which may be read wrongly", r.opts.IDColumn))
	}
	return nil
}

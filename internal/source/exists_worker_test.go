package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowConn is a connection of a test that answers when it is told to.
type slowConn struct {
	bed *slowBed
}

// slowBed counts connections, and holds answers back.
type slowBed struct {
	mu      sync.Mutex
	open    int
	opened  int
	rows    map[string]bool
	queries []string
	hold    chan struct{} // nil: queries are answered at once, with the rows of the time they came
	fail    error         // of connecting
	lost    bool          // connections are closed by the server
}

func (b *slowBed) connect(context.Context) (*orderConn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened++; b.fail != nil {
		return nil, b.fail
	}
	b.open++
	return &orderConn{conn: &slowConn{bed: b}, kind: MySQL, table: "t", id: column{out: "id", sql: "id", in: "%s"}, opened: time.Now()}, nil
}

func (c *slowConn) query(ctx context.Context, s *statement, row func([][]byte)) error {
	b := c.bed
	b.mu.Lock()
	id := s.args[0].text
	b.queries = append(b.queries, id)
	exists, hold, lost := b.rows[id], b.hold, b.lost
	b.lost = false
	b.mu.Unlock()
	if lost {
		return errors.New("the connection was lost")
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if exists {
		row([][]byte{[]byte(id)})
	}
	return nil
}

func (c *slowConn) close() {
	c.bed.mu.Lock()
	defer c.bed.mu.Unlock()
	c.bed.open--
}

// counts returns how many connections are open, and how many were opened.
func (b *slowBed) counts() (open, opened int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, b.opened
}

func (b *slowBed) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// onSlowTable runs a test in a bubble with a Confirmer whose clock it can move.
func onSlowTable(t *testing.T, opts ConfirmerOptions, test func(t *testing.T, b *slowBed, c *Confirmer)) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewConfirmer(TableOptions{Kind: MySQL, DSN: "u@tcp(h)/d", Table: "t", IDColumn: "id", CursorColumn: "id"}, opts)
		must(t, err)
		b := &slowBed{rows: map[string]bool{}}
		c.open = b.connect
		defer c.Close()
		test(t, b, c)
	})
}

var slowOptions = ConfirmerOptions{Timeout: 200 * time.Millisecond, MaxQueries: 2}

// TestExistsIsNotOlder has an order created while a query about it is under way, which does not
// see it. A caller who comes then must not get the answer of that query.
func TestExistsIsNotOlder(t *testing.T) {
	onSlowTable(t, slowOptions, func(t *testing.T, b *slowBed, c *Confirmer) {
		hold := make(chan struct{})
		b.hold = hold
		var calls sync.WaitGroup
		answer := func(want bool) {
			calls.Go(func() {
				if got, err := c.Exists(t.Context(), "7"); got != want || err != nil {
					t.Errorf("%t, %v, want %t", got, err, want)
				}
			})
		}
		answer(false)
		synctest.Wait() // it was sent
		b.set(func() { b.rows["7"] = true })
		answer(true)
		answer(true)
		synctest.Wait()
		close(hold)
		calls.Wait()
		if got := fmt.Sprint(b.queries); got != "[7 7]" {
			t.Errorf("queries %s", got)
		}
	})
}

// TestExistsDropsWhatNoOneAwaits does not send a query whose callers have left.
func TestExistsDropsWhatNoOneAwaits(t *testing.T) {
	onSlowTable(t, ConfirmerOptions{Timeout: 200 * time.Millisecond, MaxQueries: 1}, func(t *testing.T, b *slowBed, c *Confirmer) {
		hold := make(chan struct{})
		b.hold = hold
		var calls sync.WaitGroup
		for _, id := range []string{"1", "1", "2", "3"} {
			calls.Go(func() {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("it left"))
				defer cancel()
				if _, err := c.Exists(ctx, id); err == nil || err.Error() != "it left" {
					t.Errorf("%v", err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		close(hold)
		synctest.Wait()
		if exists, err := c.Exists(t.Context(), "4"); exists || err != nil {
			t.Errorf("%t, %v", exists, err)
		}
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if got := fmt.Sprint(b.queries); got != "[1 4]" || len(c.lanes)+c.queue.Len() > 0 {
			t.Errorf("queries %s, %d lanes are left", got, len(c.lanes))
		}
	})
}

// TestExistsConnections counts connections over an hour.
func TestExistsConnections(t *testing.T) {
	onSlowTable(t, slowOptions, func(t *testing.T, b *slowBed, c *Confirmer) {
		counts := func(what string, open, opened int) {
			t.Helper()
			synctest.Wait()
			if o, n := b.counts(); o != open || n != opened {
				t.Errorf("%s: %d connections, %d opened so far; want %d and %d", what, o, n, open, opened)
			}
		}
		counts("before", 0, 0)
		c.Warm()
		counts("warm", 1, 1)
		c.Warm()
		counts("warm already", 1, 1)
		hold := make(chan struct{})
		b.set(func() { b.hold = hold })
		var calls sync.WaitGroup
		for i := range 5 {
			calls.Go(func() { _, _ = c.Exists(t.Context(), fmt.Sprint(i)) })
		}
		counts("busy", 2, 2)
		close(hold)
		calls.Wait()
		counts("idle", 2, 2)
		time.Sleep(maxIdle + time.Second)
		counts("the last stays", 1, 2)
		time.Sleep(maxAge + maxIdle)
		counts("it is renewed", 1, 3)
		b.set(func() { b.lost = true })
		if _, err := c.Exists(t.Context(), "1"); err != nil {
			t.Errorf("on a connection that was lost: %v", err)
		}
		counts("lost", 1, 4)
		c.Retire()
		counts("retired", 0, 4)
		if _, err := c.Exists(t.Context(), "1"); err != nil {
			t.Error(err)
		}
		counts("retired, and asked", 0, 5)
		c.Warm()
		counts("in use again", 1, 6)
		c.Close()
		counts("closed", 0, 6)
		if _, err := c.Exists(t.Context(), "1"); !errors.Is(err, errConfirmerClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestExistsWhileAway connects a few times a second only.
func TestExistsWhileAway(t *testing.T) {
	onSlowTable(t, ConfirmerOptions{Timeout: 200 * time.Millisecond, MaxQueries: 8}, func(t *testing.T, b *slowBed, c *Confirmer) {
		b.fail = errors.New("connection refused")
		for range 1000 {
			var calls sync.WaitGroup
			for i := range 20 {
				calls.Go(func() {
					if _, err := c.Exists(t.Context(), fmt.Sprint(i)); err == nil || !strings.Contains(err.Error(), "connection refused") {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			time.Sleep(time.Millisecond)
		}
		if _, opened := b.counts(); opened < 5 || opened > 10+8 { // the first time, each worker tries
			t.Errorf("%d attempts to connect in a second", opened)
		}
		b.set(func() { b.fail = nil })
		time.Sleep(reconnectPause + time.Millisecond)
		if _, err := c.Exists(t.Context(), "1"); err != nil {
			t.Error(err)
		}
	})
}

// TestExistsTimesOut has the server not answer at all.
func TestExistsTimesOut(t *testing.T) {
	onSlowTable(t, slowOptions, func(t *testing.T, b *slowBed, c *Confirmer) {
		b.hold = make(chan struct{})
		began := time.Now()
		if _, err := c.Exists(t.Context(), "1"); err == nil || time.Since(began) != slowOptions.Timeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(killGrace + time.Millisecond)
		synctest.Wait()
		if open, _ := b.counts(); open != 0 {
			t.Errorf("%d connections that do not answer are open", open)
		}
	})
}

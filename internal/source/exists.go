package source

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ConfirmerOptions are the settings of a [Confirmer].
type ConfirmerOptions struct {
	// Timeout bounds [Confirmer.Exists], with the wait for a connection. The server stops a query
	// after the same time.
	Timeout    time.Duration
	MaxQueries int // at once, each on its own connection; at least 1
	// Same reports whether a text of the ID column names the order of an ID. It is called by
	// several goroutines. Nil: the texts are equal. A Confirmer finds other spellings of an ID if
	// all of their letters have one case, or if the column's collation takes them for equal.
	Same   func(text, id string) bool
	Logger *slog.Logger // default: none
}

// Confirmer looks up single orders in a [Table], by its ID column. It is safe for concurrent use.
//
// Callers with the same ID share a query that has not been sent yet. They never share one that
// was sent before they asked: it may have missed an order that was created since.
type Confirmer struct {
	name    string // of the table, for errors
	opts    ConfirmerOptions
	open    func(ctx context.Context) (*orderConn, error)
	running context.Context // ends with Close
	cancel  context.CancelFunc
	workers sync.WaitGroup
	wake    chan struct{} // a token for each idle worker that has a question
	// explained: the plan of a query was checked.
	explained atomic.Bool

	mu      sync.Mutex
	queue   list.List        // of *question, in the order of their arrival
	lanes   map[string]*lane // by ID
	busy    int              // workers that are not idle
	idle    int              // workers that wait for a token, and for which there is none
	retired bool
	closed  bool
	retryAt time.Time // no worker connects before it
	lastErr error     // of the last attempt to connect; nil: it succeeded
}

// NewConfirmer returns a Confirmer of a table. It does not connect yet. Of the table's options it
// uses Kind, DSN, Table, IDColumn and CursorColumn. Close it.
func NewConfirmer(table TableOptions, opts ConfirmerOptions) (*Confirmer, error) {
	t, err := NewTable(table)
	if err != nil {
		return nil, err
	}
	if opts.Timeout <= 0 || opts.MaxQueries < 1 {
		return nil, fmt.Errorf("%s: %d queries at once for %v each: use more than 0 of both", t.name, opts.MaxQueries, opts.Timeout)
	}
	if opts.Same == nil {
		opts.Same = func(text, id string) bool { return text == id }
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	c := &Confirmer{name: t.name, opts: opts, lanes: make(map[string]*lane), wake: make(chan struct{}, opts.MaxQueries)}
	if table.Kind == MySQL {
		c.open, err = c.mysqlOpener(t.opts)
	} else {
		c.open, err = c.postgresOpener(t.opts)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	c.running, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

var errConfirmerClosed = errors.New("ordergate is stopping")

// Exists reports whether the table has an order, at some moment during the call. It blocks until
// ctx ends or for [ConfirmerOptions].Timeout. The error is ctx's cause, or says why the table did
// not answer. Exists may keep the ID after it has returned.
func (c *Confirmer) Exists(ctx context.Context, id string) (bool, error) {
	q := c.ask(id)
	if q == nil {
		return false, errConfirmerClosed
	}
	timer := time.NewTimer(c.opts.Timeout)
	defer timer.Stop()
	select {
	case <-q.done:
	case <-ctx.Done():
		c.leave(q)
		return false, context.Cause(ctx)
	case <-timer.C:
		c.leave(q)
		return false, c.errTimeout()
	case <-c.running.Done():
		return false, errConfirmerClosed
	}
	if errors.Is(q.err, errStopped) {
		return false, c.errTimeout()
	}
	if q.err != nil {
		return false, fmt.Errorf("looking up an order in %s: %w", c.name, q.err)
	}
	return q.exists, nil
}

func (c *Confirmer) errTimeout() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastErr != nil {
		return fmt.Errorf("looking up an order in %s: no answer for %v; the last attempt to connect: %w", c.name, c.opts.Timeout, c.lastErr)
	}
	return fmt.Errorf("looking up an order in %s: no answer for %v", c.name, c.opts.Timeout)
}

// Check connects and reports whether the table can be asked, and whether an index answers. It
// blocks until ctx ends at most.
func (c *Confirmer) Check(ctx context.Context) error {
	conn, err := c.open(ctx)
	if err == nil {
		defer conn.close()
		var has bool
		if has, err = conn.hasIndex(ctx); err == nil && !has {
			err = conn.errNoIndex()
		}
	}
	if err != nil {
		return fmt.Errorf("checking %s: %w", c.name, err)
	}
	return nil
}

// Warm has a first connection opened, in the background. Without it, the first caller waits for
// that. It also undoes Retire.
func (c *Confirmer) Warm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = false
	if !c.closed && c.busy+c.idle == 0 {
		c.startWorker()
	}
}

// Retire closes each connection as soon as it has no question. Callers may go on to ask, for
// which connections are opened.
func (c *Confirmer) Retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.wakeAll()
}

// Close ends all questions with an error, closes the connections and waits for that.
func (c *Confirmer) Close() {
	c.mu.Lock()
	c.closed = true
	c.wakeAll()
	c.mu.Unlock()
	c.cancel()
	c.workers.Wait()
}

// spellings returns the texts by which to look an order up.
func (c *Confirmer) spellings(id string) []string {
	all := []string{id}
	for _, other := range []string{strings.ToUpper(id), strings.ToLower(id)} {
		if other != id && c.opts.Same(other, id) {
			all = append(all, other)
		}
	}
	return all
}

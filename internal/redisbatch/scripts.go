package redisbatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A batch of scripts is not so small that it costs more round trips than it saves time,
// nor so large that its last call waits long for its first.
const (
	MinScripts = 32
	MaxScripts = 256
)

// A batch is redirected as often as go-redis redirects a command by default, with a pause for
// the nodes to agree.
const (
	maxRedirects  = 3
	redirectPause = 5 * time.Millisecond
)

// ScriptBatcher runs the scripts of many callers in few round trips. Its methods are safe
// for concurrent use.
type ScriptBatcher struct {
	client   redis.UniversalClient
	replicas int           // that have to confirm what is called with Confirm
	timeout  time.Duration // of the replicas
	batcher  *Batcher[*ScriptCall]
}

// NewScriptBatcher returns one for a client, which it does not close. So many replicas have
// to confirm, within the timeout, what a call with Confirm writes; 0: none.
func NewScriptBatcher(client redis.UniversalClient, replicas int, timeout time.Duration) *ScriptBatcher {
	b := &ScriptBatcher{client: client, replicas: replicas, timeout: timeout}
	b.batcher = New(Options[*ScriptCall]{Client: client, MinBatch: MinScripts, MaxBatch: MaxScripts, Send: b.send})
	return b
}

// Do runs a script and waits for its answer, one integer, or until ctx ends. A caller that
// is alone, with a server that was quick so far, learns that its context was canceled when
// the answer comes, or after the client's timeouts; a deadline counts at once if the client
// heeds it (redis.Options.ContextTimeoutEnabled). After an error for which [IsAmbiguous] is
// true the script may have run; an [AbandonedError] can wait for what it did.
func (b *ScriptBatcher) Do(ctx context.Context, c *ScriptCall) (int64, error) {
	if err := b.do(ctx, c); err != nil {
		return 0, err
	}
	n := c.value()
	c.recycle()
	return n, nil
}

// DoList is Do for a script that answers a list.
func (b *ScriptBatcher) DoList(ctx context.Context, c *ScriptCall) ([]int64, error) {
	c.list = true
	if err := b.do(ctx, c); err != nil {
		return nil, err
	}
	list := c.numbers()
	c.recycle()
	return list, nil
}

// DoAsync is Do for a caller that does not wait: a worker calls then with the answer. Other
// callers wait for that worker, so then must not block. A call whose context ends before it
// is sent is not sent. The client must not be that of a cluster.
func (b *ScriptBatcher) DoAsync(ctx context.Context, c *ScriptCall, then func(int64, error)) {
	c.ctx, c.then = ctx, then
	q, _ := b.batcher.Queue(ctx, c.firstKey()) // it fails on a cluster only
	q.Add(c)
}

// Waiting returns how many calls wait to be sent.
func (b *ScriptBatcher) Waiting() int { return b.batcher.Waiting() }

// Close waits for the calls that are queued or on their way. A later call is still sent.
func (b *ScriptBatcher) Close() { b.batcher.Close() }

func (b *ScriptBatcher) do(ctx context.Context, c *ScriptCall) error {
	if err := ctx.Err(); err != nil {
		return unsentError{err}
	}
	q, err := b.batcher.Queue(ctx, c.firstKey())
	if err != nil {
		return unsentError{err}
	}
	switch {
	case c.Queue:
		q.Add(c)
	case q.trySend(ctx, c):
		err := asDeadline(ctx, c.err)
		if err != nil {
			c.recycle()
		}
		return err
	}
	select {
	case <-c.done:
		err := c.err
		if err != nil {
			c.recycle()
		}
		return err
	case <-ctx.Done():
	}
	if q.Withdraw(c) {
		return unsentError{ctx.Err()}
	}
	return AbandonedError{ctx.Err(), c}
}

// send runs a batch at a node of a cluster, or at the server if node is nil.
func (b *ScriptBatcher) send(ctx context.Context, node *redis.Client, batch []*ScriptCall) {
	b.sendTo(ctx, node, batch)
	if node == nil || b.replicas == 0 {
		return
	}
	// The nodes learn of a move one after the other, so the next one may redirect as well.
	for range maxRedirects {
		if !b.redirect(ctx, batch) {
			return
		}
		time.Sleep(redirectPause)
	}
}

func (b *ScriptBatcher) sendTo(ctx context.Context, node *redis.Client, batch []*ScriptCall) {
	SendByName(batch, func(calls []*ScriptCall, withText bool) {
		if withText {
			for _, c := range calls {
				c.withText()
			}
		}
		b.sendOnce(ctx, node, calls)
	}, func(c *ScriptCall) error { return c.err })
}

// redirect repeats calls that a node has redirected to another one. The client of a
// cluster does so, but a batch that replicas confirm goes to one node past it. A call that
// needs no confirmation is left to the client. It returns false if there was none.
func (b *ScriptBatcher) redirect(ctx context.Context, batch []*ScriptCall) (redirected bool) {
	elsewhere := make(map[string][]*ScriptCall) // by address; "": where the client finds it
	for _, c := range batch {
		addr, moved := redis.IsMovedError(c.err)
		_, moving := redis.IsAskError(c.err)
		switch {
		case !c.Confirm && (moved || moving):
			elsewhere[""] = append(elsewhere[""], c)
		case moved:
			elsewhere[addr] = append(elsewhere[addr], c)
		}
	}
	for addr, calls := range elsewhere {
		redirected = true
		var node *redis.Client
		if addr != "" {
			if node = b.nodeAt(ctx, addr); node == nil {
				continue
			}
		}
		b.sendTo(ctx, node, calls)
	}
	return redirected
}

// nodeAt returns the node of a cluster at an address, or nil. The client reads the map of
// the cluster anew.
func (b *ScriptBatcher) nodeAt(ctx context.Context, addr string) *redis.Client {
	var found atomic.Pointer[redis.Client]
	_ = b.batcher.cluster.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr == addr {
			found.Store(node)
		}
		return nil
	})
	return found.Load()
}

// sendOnce sends calls in one round trip and stores their errors.
func (b *ScriptBatcher) sendOnce(ctx context.Context, node *redis.Client, calls []*ScriptCall) {
	confirm := false
	for _, c := range calls {
		c.prepare(ctx)
		confirm = confirm || c.Confirm
	}
	confirm = confirm && b.replicas > 0
	if len(calls) == 1 && !confirm {
		_ = b.client.Process(ctx, calls[0].command()) // the command has the error
		calls[0].err = calls[0].answerError()
		return
	}
	// WAIT counts what was written on its own connection, and has no key by which the
	// client of a cluster would find the node.
	var client redis.Cmdable = b.client
	if confirm && node != nil {
		client = node
	}
	var acks *redis.IntCmd
	EnsureErrors(client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range calls {
			_ = p.Process(ctx, c.command()) // only queued
		}
		if confirm {
			acks = redis.NewIntCmd(ctx, "wait", b.replicas, b.timeout.Milliseconds())
			_ = p.Process(ctx, acks)
		}
		return nil
	}))
	for _, c := range calls {
		c.err = c.answerError()
		switch {
		case c.err != nil || !confirm || !c.Confirm:
		case c.refused(): // it wrote nothing that a replica could lose
		case acks.Err() != nil:
			c.err = acks.Err()
		case acks.Val() < int64(b.replicas):
			c.err = ErrNotReplicated
		}
	}
}

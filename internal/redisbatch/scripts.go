package redisbatch

import (
	"context"
	"errors"
	"sync"
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

// redirectPauses are before each attempt to send calls again: one more than go-redis makes by
// default. The nodes learn of a move one after the other, so the next one may redirect as well;
// on a busy machine that lasted for longer than the first three.
var redirectPauses = [...]time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}

// ScriptBatcher runs the scripts of many callers in few round trips. Its methods are safe
// for concurrent use.
type ScriptBatcher struct {
	client   redis.UniversalClient
	replicas int           // that have to confirm what is called with Confirm
	timeout  time.Duration // of the replicas
	batcher  *Batcher[*ScriptCall]
}

// NewScriptBatcher returns one for a client, which it does not close. So many replicas have
// to confirm, within the timeout, what a call with Confirm writes; 0: none. Gather is that of [Options].
func NewScriptBatcher(client redis.UniversalClient, gather func() int, replicas int, timeout time.Duration) *ScriptBatcher {
	b := &ScriptBatcher{client: client, replicas: replicas, timeout: timeout}
	b.batcher = New(Options[*ScriptCall]{Client: client, MinBatch: MinScripts, MaxBatch: MaxScripts, Gather: gather, Send: b.send})
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

// Start is Do for a caller that must not block. It calls then once: with an answer in a goroutine of the
// batcher, which then must not block, or with an error in one of its own. Only for a cluster it may block
// before that, like Do.
func (b *ScriptBatcher) Start(ctx context.Context, c *ScriptCall, then func(int64, error)) {
	if err := ctx.Err(); err != nil {
		go then(0, unsentError{err})
		return
	}
	q, err := b.batcher.Queue(ctx, c.firstKey())
	if err != nil {
		go then(0, unsentError{err})
		return
	}
	c.then = then
	c.mu.Lock()
	defer c.mu.Unlock()
	q.Add(c)
	c.stop = context.AfterFunc(ctx, func() {
		if q.Withdraw(c) {
			then(0, unsentError{ctx.Err()})
			return
		}
		then(0, AbandonedError{ctx.Err(), c})
	})
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
	if node == nil || len(batch) == 1 && !b.confirms(batch[0]) {
		return // the client has followed redirections
	}
	for _, pause := range redirectPauses {
		if !b.redirect(ctx, batch, pause) {
			return
		}
	}
}

// confirms reports whether replicas have to confirm a call.
func (b *ScriptBatcher) confirms(c *ScriptCall) bool { return c.Confirm && b.replicas > 0 }

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

// redirect repeats calls that a node of a cluster has not run, after a pause, at the node that
// it names or that has their keys now. It returns false if there were none. A batch goes to
// one node past the client of the cluster, which would follow redirections, too. But where it
// repeats a pipeline, it may send a command to two nodes at once, and read both replies into
// it (go-redis 9.23: pipelineReadCmds). And WAIT has no key by which it would find a node.
func (b *ScriptBatcher) redirect(ctx context.Context, batch []*ScriptCall, pause time.Duration) (redirected bool) {
	moved := make(map[string][]*ScriptCall) // by address
	var alone, rest []*ScriptCall
	for _, c := range batch {
		if addr, ok := redis.IsMovedError(c.err); ok {
			moved[addr] = append(moved[addr], c)
		} else if _, ok := redis.IsAskError(c.err); ok && !b.confirms(c) {
			alone = append(alone, c) // the client asks for keys that have moved already
		} else if retries(c.err) && !b.confirms(c) {
			rest = append(rest, c)
		}
	}
	if len(moved)+len(alone)+len(rest) == 0 {
		return false
	}
	time.Sleep(pause)
	again := make(map[*redis.Client][]*ScriptCall)
	for addr, calls := range moved {
		if node := b.nodeAt(ctx, addr); node != nil {
			again[node] = calls
		}
	}
	for _, c := range rest {
		if node, err := b.batcher.cluster.MasterForKey(ctx, c.firstKey()); err == nil {
			again[node] = append(again[node], c)
		}
	}
	var wg sync.WaitGroup
	for node, calls := range again {
		wg.Go(func() { b.sendTo(ctx, node, calls) })
	}
	for _, c := range alone {
		wg.Go(func() { b.sendTo(ctx, nil, []*ScriptCall{c}) })
	}
	wg.Wait()
	return true
}

// retries reports whether the client of a cluster would send a command again after this error.
func retries(err error) bool {
	var refused redis.Error
	if !errors.As(err, &refused) {
		return err != nil && !errors.As(err, new(TextAnswer)) && !errors.Is(err, ErrNotReplicated)
	}
	return redis.IsTryAgainError(err) || redis.IsClusterDownError(err) || redis.IsLoadingError(err) ||
		redis.IsReadOnlyError(err) || redis.IsMasterDownError(err)
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
		confirm = confirm || b.confirms(c)
	}
	if len(calls) == 1 && !confirm {
		_ = b.client.Process(ctx, calls[0].command()) // the command has the error
		calls[0].err = calls[0].answerError()
		return
	}
	var client redis.Cmdable = b.client
	if node != nil {
		client = node
	}
	var acks *redis.IntCmd // WAIT counts what was written on its own connection
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
		case c.err != nil && !c.isText() || !confirm || !c.Confirm:
		case c.refused(): // it wrote nothing that a replica could lose
		case acks.Err() != nil:
			c.err = acks.Err()
		case acks.Val() < int64(b.replicas):
			c.err = ErrNotReplicated
		}
	}
}

package redislock

import (
	"context"
	"crypto/sha1"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// probe sees every round trip of a client that asks scripts, and may stand in its
// way.
type probe struct {
	deeds map[string]string // by hash and by text

	mu       sync.Mutex
	trips    []trip
	answered map[string]int // answers to acquire, by owner
	// before is called before a trip is sent, and may block. Its error is the
	// answer then, and nothing is sent.
	before func(trip) error
	// after is called when a trip was answered. Its error replaces the answers.
	after func(trip) error
}

// trip is what was sent together.
type trip struct {
	asked   []asked
	confirm bool // WAIT was among it
}

// asked is one question: which deed about which lock, with what arguments after
// the keys.
type asked struct {
	deed string // such as acquire
	text bool   // the script itself was sent
	key  string
	keys int
	args []string
}

func (t trip) has(deed string) bool {
	return slices.ContainsFunc(t.asked, func(a asked) bool { return a.deed == deed })
}

// newProbe returns one that knows the scripts of a kind in a format.
func newProbe(kind Kind, format Format) *probe {
	p := &probe{deeds: make(map[string]string), answered: make(map[string]int)}
	for deed, script := range scriptsOf(kind, format).byDeed() {
		p.deeds[script.Hash], p.deeds[script.Text] = deed, deed
	}
	return p
}

// watch adds a probe to a client, and makes the scripts known, so that each question
// is asked once. On a cluster the probe sees what each node is sent, but only of
// nodes that the client has not spoken to yet.
func watch(t *testing.T, c redis.UniversalClient, kind Kind, format Format) *probe {
	t.Helper()
	p := newProbe(kind, format)
	if cluster, ok := c.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(p) })
	} else {
		c.AddHook(p)
	}
	err := onMasters(t.Context(), c, func(ctx context.Context, node redis.Cmdable) error {
		_, err := node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for text := range p.deeds {
				if len(text) > sha1.Size*2 {
					pipe.ScriptLoad(ctx, text)
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *probe) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *probe) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return p.pass([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (p *probe) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return p.pass(cmds, func() error { return next(ctx, cmds) })
	}
}

func (p *probe) pass(cmds []redis.Cmder, send func() error) error {
	t := p.read(cmds)
	if len(t.asked) == 0 { // what a connection begins with, say
		return send()
	}
	p.mu.Lock()
	p.trips = append(p.trips, t)
	before, after := p.before, p.after
	p.mu.Unlock()
	instead := func(err error) error {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
	if before != nil {
		if err := before(t); err != nil {
			return instead(err)
		}
	}
	err := send()
	if after != nil {
		if err := after(t); err != nil {
			return instead(err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range t.asked {
		if a.deed == "acquire" {
			p.answered[a.args[1]]++
		}
	}
	return err
}

const firstKey = 3 // EVALSHA hash numkeys key

// read copies what is sent: its memory is used again.
func (p *probe) read(cmds []redis.Cmder) (t trip) {
	for _, cmd := range cmds {
		args := make([]string, len(cmd.Args()))
		for i, arg := range cmd.Args() {
			if text, ok := arg.(*string); ok {
				args[i] = *text
			} else {
				args[i] = fmt.Sprint(arg)
			}
		}
		switch name := args[0]; name {
		case "wait":
			t.confirm = true
		case "eval", "evalsha":
			n := cmd.Args()[2].(int)
			t.asked = append(t.asked, asked{
				deed: p.deeds[args[1]], text: name == "eval", key: args[firstKey], keys: n, args: args[firstKey+n:],
			})
		}
	}
	return t
}

// block has trips wait that match before they are sent. It returns a channel that
// gets each of them as it begins to wait, and what lets them and all others pass.
func (p *probe) block(match func(trip) bool) (blocked <-chan trip, open func()) {
	waiting, opened := make(chan trip, 1000), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = func(t trip) error {
		if match(t) {
			waiting <- t
			<-opened
		}
		return nil
	}
	return waiting, sync.OnceFunc(func() { close(opened) })
}

// blockAnswer is block for answers.
func (p *probe) blockAnswer(match func(trip) bool) (blocked <-chan trip, open func()) {
	waiting, opened := make(chan trip, 1000), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = func(t trip) error {
		if match(t) {
			waiting <- t
			<-opened
		}
		return nil
	}
	return waiting, sync.OnceFunc(func() { close(opened) })
}

// once has err be the answer of the first trip that matches: either nothing is sent
// then, or it is and the answer is lost.
func (p *probe) once(match func(trip) bool, send bool, err error) {
	var done bool
	answer := func(t trip) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if done || !match(t) {
			return nil
		}
		done = true
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if send {
		p.after = answer
	} else {
		p.before = answer
	}
}

// seen returns the trips since the last call.
func (p *probe) seen() []trip {
	p.mu.Lock()
	defer p.mu.Unlock()
	trips := p.trips
	p.trips = nil
	return trips
}

// deedsSeen returns what was asked since the last call of seen, trip by trip.
func (p *probe) deedsSeen() []string {
	var deeds []string
	for _, t := range p.seen() {
		for _, a := range t.asked {
			deeds = append(deeds, a.deed)
		}
	}
	return deeds
}

func isDeed(deed string) func(trip) bool { return func(t trip) bool { return t.has(deed) } }

// wantWaiting waits until so many callers of a Locker wait.
func wantWaiting(t *testing.T, l *Locker, n int) {
	t.Helper()
	bedtest.Eventually(t, fmt.Sprintf("%d wait", n), func() bool { return l.Waiting() == n })
}

// settle waits until the first of a line waits for nothing but a release: it asked
// when it came, and again when its subscription stood. It was the first from the
// beginning. The trips up to then are forgotten.
func (p *probe) settle(t *testing.T, l *Locker, key string) {
	t.Helper()
	bedtest.Eventually(t, "the first in line has settled", func() bool {
		l.waiters.mu.Lock()
		defer l.waiters.mu.Unlock()
		line := l.waiters.queues[key]
		if line == nil || len(line.waiters) == 0 {
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		s := line.waiters[0]
		return p.answered[s.owner] >= 2 && !s.asking && !s.woken
	})
	p.seen()
}

// wantListeners waits until so many subscriptions hear a channel of a single Redis.
func wantListeners(t *testing.T, c redis.UniversalClient, channel string, n int64) {
	t.Helper()
	bedtest.Eventually(t, fmt.Sprintf("%d listen", n), func() bool {
		return c.PubSubNumSub(t.Context(), channel).Val()[channel] == n
	})
}

// another returns a second client of the same Redis, without the first one's hooks.
func another(t *testing.T, c redis.UniversalClient) redis.UniversalClient {
	t.Helper()
	single, ok := c.(*redis.Client)
	if !ok {
		t.Fatalf("no other client of a %T", c)
	}
	return connect(t, clientOptions(single.Options().Addr))
}

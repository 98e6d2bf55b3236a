package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// fault is one thing that is done to the fleet, for a while, and undone.
type fault struct {
	name string // the kind, and behind a comma which of those
	do   func(ctx context.Context, r *rand.Rand)
}

// kind is what comes before the comma.
func (f fault) kind() string {
	kind, _, _ := strings.Cut(f.name, ",")
	return kind
}

// longest bounds a fault that lasts.
func longest(most time.Duration) time.Duration {
	if soak {
		return most
	}
	return min(most, 800*time.Millisecond)
}

// between returns a random time.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// atPlace makes a fault of something that is done to one sidecar, by chance, to which
// nothing else is done at that time.
func (f *fleet) atPlace(name string, do func(ctx context.Context, r *rand.Rand, p *place)) fault {
	return fault{name, func(ctx context.Context, r *rand.Rand) {
		p := f.places[r.IntN(len(f.places))]
		p.turn.Lock()
		defer p.turn.Unlock()
		do(ctx, r, p)
	}}
}

// placeFaults are those of one sidecar.
func (f *fleet) placeFaults() []fault {
	through := func(name string, do func(*proxy, *rand.Rand)) fault {
		return f.atPlace(name, func(ctx context.Context, r *rand.Rand, p *place) {
			last := between(r, 100*time.Millisecond, longest(5*time.Second))
			defer f.diary.note("%s: between %s and Redis", name, p)()
			for _, hop := range p.redis {
				do(hop, r)
			}
			wait(ctx, last)
			for _, hop := range p.redis {
				hop.heal()
			}
		})
	}
	list := []fault{
		through("latency", func(p *proxy, r *rand.Rand) { p.latency(5 + r.IntN(146)) }),
		through("resets", func(p *proxy, r *rand.Rand) { p.reset(r.IntN(20)) }),
		through("cuts", func(p *proxy, _ *rand.Rand) { p.cut() }),
		through("half-open", func(p *proxy, _ *rand.Rand) { p.swallow() }),
		through("deaf", func(p *proxy, r *rand.Rand) { p.deafen([]string{"upstream", "downstream"}[r.IntN(2)]) }),
		f.atPlace("refused", func(ctx context.Context, r *rand.Rand, p *place) {
			defer f.diary.note("refused: connections of %s", p)()
			for _, hop := range p.redis {
				hop.p.Stop()
			}
			wait(ctx, between(r, 100*time.Millisecond, longest(5*time.Second)))
			for _, hop := range p.redis {
				if err := hop.p.Start(); err != nil {
					f.t.Errorf("opening a proxy again: %v", err)
				}
			}
		}),
		f.atPlace("stop", func(ctx context.Context, r *rand.Rand, p *place) {
			defer f.diary.note("stop: %s", p)()
			p.interrupted.Add(1)
			defer p.interrupted.Add(1)
			if err := p.gate.Pause(); err != nil {
				f.t.Error(err)
			}
			wait(ctx, between(r, 200*time.Millisecond, longest(3*time.Second)))
			if err := p.gate.Resume(); err != nil {
				f.t.Error(err)
			}
		}),
	}
	for _, with := range []string{"its snapshot", "an older snapshot", "a damaged snapshot", "no snapshot"} {
		list = append(list,
			f.atPlace("end, "+with, func(ctx context.Context, r *rand.Rand, p *place) {
				defer f.diary.note("end, %s: %s", with, p)()
				p.interrupted.Add(1)
				if err := p.end(context.WithoutCancel(ctx)); err != nil {
					f.t.Error(err)
				}
				f.restart(ctx, r, p, with)
			}),
			f.atPlace("kill, "+with, func(ctx context.Context, r *rand.Rand, p *place) {
				defer f.diary.note("kill, %s: %s", with, p)()
				p.interrupted.Add(1)
				p.gate.Kill()
				f.restart(ctx, r, p, with)
			}))
	}
	return list
}

// restart brings a sidecar back after a while. Nothing is created there until it has
// reached Redis: it is not ready before, and nobody would miss it.
func (f *fleet) restart(ctx context.Context, r *rand.Rand, p *place, with string) {
	defer p.interrupted.Add(1)
	for range slots {
		p.busy[creating] <- struct{}{}
		defer p.leave(creating)
	}
	if r.IntN(2) == 0 {
		wait(ctx, between(r, 0, longest(3*time.Second)))
	}
	if err := p.prepare(r, with); err != nil {
		f.t.Errorf("preparing the snapshot of %s: %v", p, err)
	}
	// Past the end of the run, which needs all of them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*eventually)
	defer cancel()
	if err := p.gate.Restart(ctx); err != nil {
		f.t.Errorf("starting %s again: %v", p, err)
	}
	for !p.member(ctx) {
		if ctx.Err() != nil {
			f.t.Errorf("%s never became a member: %s", p, p.state(context.Background()))
			return
		}
		wait(ctx, 10*time.Millisecond)
	}
}

// prepare has a sidecar find another snapshot than it left.
func (p *place) prepare(r *rand.Rand, with string) error {
	text, err := os.ReadFile(p.snapshot)
	if os.IsNotExist(err) {
		return nil // it ended before it had written one
	}
	if err != nil {
		return err
	}
	older := p.older
	if older == nil || r.IntN(3) == 0 {
		p.older = text
	}
	switch with {
	case "an older snapshot":
		if older == nil {
			return nil
		}
		text = older
	case "a damaged snapshot":
		if r.IntN(2) == 0 {
			text = text[:r.IntN(len(text))]
		} else {
			text[r.IntN(len(text))] ^= 1 << r.IntN(8)
		}
	case "no snapshot":
		return os.Remove(p.snapshot)
	default:
		return nil
	}
	return os.WriteFile(p.snapshot, text, 0o600)
}

// reset has the peer of the next packet reset the connection.
func (p *proxy) reset(ms int) { p.both("reset_peer", map[string]any{"timeout": ms}) }

// deafen drops every packet of one direction; the connections stay open.
func (p *proxy) deafen(stream string) {
	text := fmt.Sprintf(`{"type": "timeout", "stream": %q, "attributes": {"timeout": 0}}`, stream)
	if _, err := p.p.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		p.t.Errorf("dropping what goes %s: %v", stream, err)
	}
}

// storm has several things happen at a time, until ctx ends: one to each sidecar, and
// one to the servers.
func (f *fleet) storm(ctx context.Context, r *rand.Rand, servers []fault) {
	defer f.diary.note("storm")()
	all := chosen(f.placeFaults())
	hands := make(chan struct{})
	for n := range sidecars + 1 {
		list, r := all, rand.New(rand.NewPCG(r.Uint64(), 0))
		if n == sidecars {
			list = servers
		}
		go func() {
			defer func() { hands <- struct{}{} }()
			for ctx.Err() == nil && len(list) > 0 {
				list[r.IntN(len(list))].do(ctx, r)
				wait(ctx, between(r, 0, 3*time.Second))
			}
		}()
	}
	for range sidecars + 1 {
		<-hands
	}
}

// mustRecover waits until every sidecar is certain again, and returns how long that
// took. The test ends if it takes longer than the bound.
func (f *fleet) mustRecover(after string) time.Duration {
	f.t.Helper()
	const bound = 15 * time.Second
	began := time.Now()
	var late []string
	for {
		late = late[:0]
		for _, p := range f.places {
			if p.certain.Load() < began.UnixNano() {
				late = append(late, p.String())
			}
		}
		took := time.Since(began)
		switch {
		case len(late) == 0:
			return took.Round(time.Millisecond)
		case took > bound:
			f.t.Fatalf("%v after %s, %v call nothing absent\n%s%s", took, after, late, f.diary.around(time.Now()), f.states())
		}
		wait(f.t.Context(), 10*time.Millisecond)
	}
}

package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
)

// failovers are the ways in which a master is replaced, or comes back without what it
// had.
type failovers struct {
	*fleet
	sentinel *testbed.Sentinel
}

// client returns the one that asks a node past all proxies.
func (f failovers) client(node *testbed.Redis) *redis.Client {
	return f.admin[slices.Index(f.sentinel.Nodes(), node)]
}

// current returns a client of the master, nil if there is none in time.
func (f failovers) current(ctx context.Context) *redis.Client {
	ctx, cancel := context.WithTimeout(ctx, eventually)
	defer cancel()
	master, err := f.sentinel.Current(ctx)
	if err != nil {
		return nil
	}
	return f.client(master)
}

// replace makes a fault of something that ends in another master, or the same one. The
// servers are whole again when it ends.
func (f failovers) replace(name string, do func(ctx context.Context, r *rand.Rand, old *testbed.Redis) error) fault {
	return fault{name, func(ctx context.Context, r *rand.Rand) {
		defer f.diary.note("%s", name)()
		// Past the end of the run.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*eventually)
		defer cancel()
		old, err := f.sentinel.Current(ctx)
		if err == nil {
			err = do(ctx, r, old)
		}
		if err == nil {
			err = f.sentinel.Settle(ctx)
		}
		if err != nil {
			f.t.Errorf("%s: %v", name, err)
		}
	}}
}

func (f failovers) faults() []fault {
	return []fault{
		f.replace("failover", func(ctx context.Context, _ *rand.Rand, _ *testbed.Redis) error {
			if _, err := f.sentinel.Failover(ctx); err != nil {
				// The Sentinels put it off: one that they began before is not over for them.
				f.t.Logf("a failover on demand did not come: %v", err)
			}
			return nil
		}),
		f.replace("master stopped", func(ctx context.Context, r *rand.Rand, old *testbed.Redis) error {
			if err := old.Pause(); err != nil {
				return err
			}
			_, err := f.sentinel.Await(ctx, old)
			wait(ctx, between(r, 0, time.Second))
			return errors.Join(err, old.Resume()) // for a while there are two
		}),
		f.replace("master killed", f.lose),
		f.replace("master emptied", func(ctx context.Context, _ *rand.Rand, old *testbed.Redis) error {
			old.Kill()
			return old.Restart(ctx) // before anybody misses it; the replicas follow
		}),
		f.replace("split", f.split),
	}
}

// lose kills a master whose replicas lack what it acknowledged last.
func (f failovers) lose(ctx context.Context, r *rand.Rand, old *testbed.Redis) error {
	client := f.client(old)
	secret := func(word string) (err error) {
		for _, c := range f.admin {
			if c != client {
				err = errors.Join(err, c.ConfigSet(ctx, "masterauth", word).Err())
			}
		}
		return err
	}
	err := errors.Join(secret("wrong"), client.ClientKillByFilter(ctx, "TYPE", "replica").Err())
	wait(ctx, between(r, 50*time.Millisecond, 600*time.Millisecond))
	old.Kill()
	_, awaited := f.sentinel.Await(ctx, old)
	return errors.Join(err, awaited, secret(testbed.Password), old.Restart(ctx))
}

// split takes a master away from Sentinels and replicas, and leaves it to the sidecars:
// to those that hear no Sentinel, for as long as it lasts. Those who are shut out are
// the users whom the sidecars do not use, see onlySidecars.
func (f failovers) split(ctx context.Context, r *rand.Rand, old *testbed.Redis) error {
	deaf := f.places[r.IntN(len(f.places)):]
	for _, p := range deaf {
		p.turn.Lock()
		defer p.turn.Unlock()
		for _, hop := range p.sentinels {
			hop.cut()
		}
		defer f.diary.note("deaf to the sentinels: %s", p)()
	}
	client := f.client(old)
	let := func(word string) (err error) {
		for _, user := range []string{testbed.User, "default"} {
			err = errors.Join(err, client.Do(ctx, "ACL", "SETUSER", user, word).Err())
			if word == "off" {
				err = errors.Join(err, client.Do(ctx, "CLIENT", "KILL", "USER", user).Err())
			}
		}
		return err
	}
	err := let("off")
	if err == nil {
		within, cancel := context.WithTimeout(ctx, eventually)
		defer cancel()
		_, err = f.sentinel.Await(within, old)
	}
	wait(ctx, between(r, 0, longest(4*time.Second)))
	err = errors.Join(err, let("on"))
	for _, p := range deaf {
		for _, hop := range p.sentinels {
			hop.heal()
		}
	}
	return err
}

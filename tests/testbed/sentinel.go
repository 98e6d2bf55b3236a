package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	masterName   = "mymaster"
	dataNodes    = 3 // a master and two replicas
	sentinels    = 3
	sentinelVote = 2 // Sentinels that have to miss a master
)

// quickSync has a replica copied at once, rather than after the five seconds in
// which another one might come along.
var quickSync = []string{"--repl-diskless-sync-delay", "0"}

// quickSentinel makes a Sentinel look at the others every tenth of a second,
// rather than every one to ten (Redis 7.0 and newer), and forget sooner that it was
// paused. Four times the publish-period is how long it waits before it makes a
// replica again of a master that it has not heard of: with less, it would undo the
// failover of another Sentinel, which looks at the new master once a second.
var quickSentinel = []string{
	"SENTINEL", "DEBUG", "info-period", "1000", "ask-period", "500", "publish-period", "700",
	"min-link-reconnect-period", "500", "tilt-period", "1000",
}

// Sentinel is a master with two replicas, and three Sentinels that watch them: a
// master that does not answer for a second is replaced, once two of them
// agree. Its methods are safe for concurrent use.
type Sentinel struct {
	nodes     []*Redis
	sentinels []*Redis
}

// Sentinel starts the six servers and waits until they know each other. The
// arguments are for the master and the replicas; those of [Certificates.Args] are
// for the Sentinels too. It returns a [*MissingError] if redis-server is not
// installed. The context bounds the start.
func (b *Bed) Sentinel(ctx context.Context, args ...string) (*Sentinel, error) {
	s, err := b.sentinel(ctx, args)
	if err != nil {
		return nil, fmt.Errorf("starting a master with sentinels: %w", err)
	}
	return s, nil
}

func (b *Bed) sentinel(ctx context.Context, args []string) (*Sentinel, error) {
	s := &Sentinel{nodes: make([]*Redis, dataNodes), sentinels: make([]*Redis, sentinels)}
	// Each may become the master, and a replica of another.
	data := redisRole{kind: "redis", args: slices.Concat(quickSync, []string{"--masteruser", User, "--masterauth", Password})}
	var err error
	if s.nodes[0], err = b.redisServer(ctx, data, args); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.nodes[0].addr)
	if err != nil {
		return nil, err
	}
	replica := redisRole{kind: data.kind, args: append(slices.Clip(data.args), "--replicaof", host, port)}
	if err := together(ctx, s.nodes[1:], func(ctx context.Context) (*Redis, error) {
		return b.redisServer(ctx, replica, args)
	}); err != nil {
		return nil, err
	}
	var tlsArgs []string
	if s.nodes[0].certs != nil {
		tlsArgs = s.nodes[0].certs.Args()
	}
	watch := redisRole{kind: "sentinel", args: []string{"--sentinel"}, file: func(string, int) string {
		return sentinelFile(host, port)
	}}
	if err := together(ctx, s.sentinels, func(ctx context.Context) (*Redis, error) {
		r, err := b.redisServer(ctx, watch, tlsArgs)
		if err == nil {
			_, _ = r.ask(ctx, quickSentinel...) // an older one is slower
		}
		return r, err
	}); err != nil {
		return nil, err
	}
	return s, s.Settle(ctx)
}

// sentinelFile returns the configuration of a Sentinel that begins with a master.
func sentinelFile(host, port string) string {
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s %d", masterName, host, port, sentinelVote),
		"user " + User + " " + strings.Join(userRules, " "),
		"sentinel sentinel-user " + User, // among themselves
		"sentinel sentinel-pass " + Password,
	}
	for _, setting := range []string{
		"down-after-milliseconds %s 1000",
		"failover-timeout %s 2000", // twice that must pass between two tries
		"auth-user %s " + User,
		"auth-pass %s " + Password,
	} {
		lines = append(lines, "sentinel "+fmt.Sprintf(setting, masterName))
	}
	return strings.Join(lines, "\n") + "\n"
}

// together starts servers at the same time.
func together(ctx context.Context, into []*Redis, start func(context.Context) (*Redis, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range into {
		group.Go(func() (err error) {
			into[i], err = start(ctx)
			return err
		})
	}
	return group.Wait()
}

// Master returns the name under which the Sentinels know the master.
func (s *Sentinel) Master() string { return masterName }

// Addrs returns the addresses of the Sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Sentinels returns the Sentinels in the order of Addrs, to kill or pause one.
func (s *Sentinel) Sentinels() []*Redis { return slices.Clone(s.sentinels) }

// Nodes returns the master and the replicas, which change places.
func (s *Sentinel) Nodes() []*Redis { return slices.Clone(s.nodes) }

// Current waits until the Sentinels that answer, two at least, agree on a master
// that knows itself for one, and returns it. Kill, Stop or Pause it for a
// failover, and give it to Await.
func (s *Sentinel) Current(ctx context.Context) (*Redis, error) { return s.Await(ctx, nil) }

// Await is Current for another master than old.
func (s *Sentinel) Await(ctx context.Context, old *Redis) (master *Redis, err error) {
	err = poll(ctx, func() (err error) {
		if master, err = s.agreed(ctx); err == nil && master == old {
			err = fmt.Errorf("%s is still the master", old.name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the sentinels' master: %w", err)
	}
	return master, nil
}

// Failover has the Sentinels replace a master that works, and returns the new one
// once they agree on it.
func (s *Sentinel) Failover(ctx context.Context) (*Redis, error) {
	old, err := s.Current(ctx)
	if err != nil {
		return nil, err
	}
	err = poll(ctx, func() (err error) {
		for _, sentinel := range running(s.sentinels) {
			if _, err = sentinel.ask(ctx, "SENTINEL", "FAILOVER", masterName); err == nil {
				return nil
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("forcing a failover: %w", err)
	}
	return s.Await(ctx, old)
}

// Settle waits until every node that runs is the master or a replica that is in
// step with it, and every Sentinel that runs knows them all and could replace the
// master: until then a failover may find nobody to promote.
func (s *Sentinel) Settle(ctx context.Context) error {
	err := poll(ctx, func() error {
		master, err := s.agreed(ctx)
		if err != nil {
			return err
		}
		for _, node := range running(s.nodes) {
			if node != master {
				if err := node.follows(ctx, master); err != nil {
					return err
				}
			}
		}
		for _, sentinel := range running(s.sentinels) {
			if err := s.complete(ctx, sentinel); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting for sentinels and replicas: %w", err)
	}
	return nil
}

// agreed returns the master that all Sentinels name which answer.
func (s *Sentinel) agreed(ctx context.Context) (*Redis, error) {
	named := make([]string, len(s.sentinels))
	var group errgroup.Group
	for i, sentinel := range s.sentinels {
		if sentinel.running() {
			group.Go(func() error {
				answer, err := sentinel.ask(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
				if pair, ok := answer.([]any); ok && len(pair) == 2 {
					named[i] = fmt.Sprintf("%v:%v", pair[0], pair[1])
				}
				return err
			})
		}
	}
	err := group.Wait() // of one that is paused, say; the others may be enough
	named = slices.DeleteFunc(named, func(addr string) bool { return addr == "" })
	if len(named) < sentinelVote {
		if err == nil {
			err = errors.New("the others have ended")
		}
		return nil, fmt.Errorf("%d sentinels answer: %w", len(named), err)
	}
	for _, other := range named[1:] {
		if other != named[0] {
			return nil, fmt.Errorf("the sentinels name %s", strings.Join(named, " and "))
		}
	}
	master := find(s.nodes, named[0])
	if master == nil || !master.running() {
		return nil, fmt.Errorf("the sentinels name %s, which does not run", named[0])
	}
	return master, master.isMaster(ctx)
}

// complete tells whether a Sentinel knows all that run and sees a replica that it
// could promote.
func (s *Sentinel) complete(ctx context.Context, sentinel *Redis) error {
	if _, err := sentinel.ask(ctx, "SENTINEL", "CKQUORUM", masterName); err != nil {
		return err
	}
	answer, err := sentinel.ask(ctx, "SENTINEL", "REPLICAS", masterName)
	if err != nil {
		return err
	}
	replicas, _ := answer.([]any)
	linked := 0
	for _, r := range replicas {
		fields := pairs(r)
		if fields["master-link-status"] == "ok" && fields["flags"] == "slave" {
			linked++
		}
	}
	if want := len(running(s.nodes)) - 1; linked < want {
		return fmt.Errorf("%s sees %d of %d replicas", sentinel.name, linked, want)
	}
	answer, err = sentinel.ask(ctx, "SENTINEL", "SENTINELS", masterName)
	if err != nil {
		return err
	}
	others, _ := answer.([]any)
	if len(others) < sentinels-1 {
		return fmt.Errorf("%s knows %d other sentinels", sentinel.name, len(others))
	}
	return nil
}

// Command worker reads and writes the numbers of a register under locks, again
// and again, until its standard input is closed. The fault tests run several of
// them at once.
//
// It does what a service should not rely on: it never looks whether a lease was
// lost. What saves the number is the fence alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/faults/register"
)

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	worker    int
	register  string
	redis     string
	sentinels string
	master    string
	via       string
	unlocked  bool
	lease     time.Duration
	callers   int
	keys      int
	hold      time.Duration
}

func run(args []string, stdin io.Reader) error {
	var s settings
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.IntVar(&s.worker, "worker", 0, "its number in the history")
	flags.StringVar(&s.register, "register", "", "address of the register")
	flags.StringVar(&s.redis, "redis", "", "address of Redis")
	flags.StringVar(&s.sentinels, "sentinels", "", "addresses of Sentinels instead, separated by commas")
	flags.StringVar(&s.master, "master", "", "the name of their master")
	flags.StringVar(&s.via, "via", "", "address=other,...: where to connect to instead")
	flags.BoolVar(&s.unlocked, "unlocked", false, "take no locks")
	flags.DurationVar(&s.lease, "lease", time.Second, "of the locks")
	flags.IntVar(&s.callers, "callers", 1, "goroutines")
	flags.IntVar(&s.keys, "keys", 1, "numbers in use, called k0, k1, ...")
	flags.DurationVar(&s.hold, "hold", time.Millisecond, "pause between reading and writing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client := s.client()
	defer client.Close()
	locker, err := redislock.New(client, redislock.Options{
		Lease: s.lease, Wait: redislock.Wait{UpTo: s.lease}, MaxWaitersPerKey: s.callers,
	})
	if err != nil {
		return err
	}
	defer locker.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	var callers errgroup.Group
	for range s.callers {
		callers.Go(func() error { return s.call(ctx, locker) })
	}
	return callers.Wait()
}

// client returns one whose timeouts are below the lease, and that repeats once.
func (s *settings) client() redis.UniversalClient {
	dial := s.dialer()
	timeout := max(s.lease/4, 50*time.Millisecond)
	if s.sentinels == "" {
		return redis.NewClient(&redis.Options{
			Addr: s.redis, Dialer: dial, ContextTimeoutEnabled: true, MaxRetries: 1,
			DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
		})
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		SentinelAddrs: strings.Split(s.sentinels, ","), MasterName: s.master, Dialer: dial,
		ContextTimeoutEnabled: true, MaxRetries: 1,
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
	})
}

// dialer connects to proxies in the place of those that they stand for.
func (s *settings) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	via := make(map[string]string)
	for pair := range strings.SplitSeq(s.via, ",") {
		if addr, other, found := strings.Cut(pair, "="); found {
			via[addr] = other
		}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if other, found := via[addr]; found {
			addr = other
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
}

// call does one section after the other until ctx ends.
func (s *settings) call(ctx context.Context, locker *redislock.Locker) error {
	numbers, err := register.Dial(ctx, s.register, s.worker)
	if err != nil && ctx.Err() != nil {
		return nil // it was to end before it began
	}
	if err != nil {
		return err
	}
	defer numbers.Close()
	for ctx.Err() == nil {
		key := fmt.Sprintf("k%d", rand.N(s.keys))
		fence, release := int64(0), func() {}
		if !s.unlocked {
			lease, err := locker.Acquire(ctx, key)
			if err != nil {
				wait(ctx, s.hold) // busy, or Redis is away
				continue
			}
			fence = lease.Fence()
			release = func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.lease)
				defer cancel()
				_ = lease.Release(ctx) // lost, maybe: that is for the fence to mend
			}
		}
		if err := s.section(ctx, numbers, key, fence); err != nil {
			return err
		}
		release()
	}
	return nil
}

func (s *settings) section(ctx context.Context, numbers *register.Client, key string, fence int64) error {
	_, section, err := numbers.Read(key, fence)
	if err == nil {
		wait(ctx, s.hold)
		err = numbers.Write(section)
	}
	if errors.Is(err, register.ErrRefused) {
		return nil
	}
	return err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Kind is what a lock allows.
type Kind string

// The kinds.
const (
	Exclusive Kind = "exclusive" // one holder; the next is the first to ask after the release
	Fair      Kind = "fair"      // one holder, in the order of arrival over all processes
	Read      Kind = "read"      // shared with other readers, while there is no writer
	Write     Kind = "write"     // alone; the other side of Read at the same key
	Semaphore Kind = "semaphore" // at most Permits holders
)

// Format is how a lock is kept in Redis.
type Format string

// The formats.
const (
	// Redisson is that of Redisson's RLock, RFencedLock, RFairLock,
	// RReadWriteLock and RSemaphore.
	Redisson Format = "redisson"
	// String is SET key owner NX PX and compare-and-delete, as many services do it
	// by hand. For kind Exclusive only. A holder that does not publish its release
	// is noticed by the poll alone.
	String Format = "string"
)

// Options says how a [Locker] behaves. Durations are rounded to milliseconds.
type Options struct {
	Kind    Kind   // "": Exclusive
	Format  Format // "": Redisson
	Permits int    // of a Semaphore: 1 to 1,000,000

	Lease            time.Duration // 0: 30s. 100ms to 24h
	Hold             time.Duration // what [Lease.Hold] leaves on the lock; 0: Lease
	Wait             Wait          // zero: one try
	MaxWaitersPerKey int           // waiting callers of this Locker for one key; past it ErrBusy. 0: no caller waits
	MaxWaiters       int           // the same over all keys; 0: 10,000

	// Replicas is how many replicas have to confirm a grant before it counts; one
	// that they have not within ReplicaTimeout (0: 100ms) is given back. 0: none.
	// WAIT makes it unlikely that a failover forgets the grant, not impossible.
	Replicas       int
	ReplicaTimeout time.Duration

	// FenceLife is how long Redis remembers the last fence of a lock after its grant; 0:
	// for ever, else 24h at the least. Fences of a Locker grow without it, by the clock
	// of Redis. But Redisson's RFencedLock begins again with 1 where there is none.
	FenceLife time.Duration
	// FencesUnused says that no backend compares the fences. FenceLife may be shorter then.
	FencesUnused bool

	// Gather means that many calls come from few threads: where Redis is near, and many leases are held, they
	// wait a moment for each other, a millisecond at most, which costs the CPU less.
	Gather bool

	Process  string       // names this process to an operator, such as a host's name; may be empty
	Observer Observer     // nil: none
	Logger   *slog.Logger // nil: none
}

// Wait bounds how long [Locker.Acquire] tries. The zero value does not wait.
type Wait struct {
	Tries int           // attempts, Every apart; 0 means as many as fit UpTo
	Every time.Duration // pause between attempts, ended early when the lock is released
	UpTo  time.Duration // total; 0 means Tries decides
}

// Observer receives what happens to locks. Its methods are called from many
// goroutines and must not block.
type Observer interface {
	// Acquired has the context of the Acquire.
	Acquired(ctx context.Context, result Result, waited time.Duration)
	Released(held time.Duration) // released or left to its hold time
	Lost()
}

// Result is how an Acquire ended, as metrics name it.
type Result = string

// The results.
const (
	Granted  Result = "granted"
	Busy     Result = "busy"
	Answered Result = "answered" // the answer of an earlier call is stored
	Canceled Result = "canceled" // the caller left
	Failed   Result = "failed"   // Redis did not answer in the caller's time, or the key holds no lock
)

const (
	defaultLease          = 30 * time.Second
	defaultMaxWaiters     = 10_000
	defaultReplicaTimeout = 100 * time.Millisecond
	minLease              = 100 * time.Millisecond
	maxLease              = 24 * time.Hour
	minFenceLife          = 24 * time.Hour // longer than a clock is ever set back
	maxPermits            = 1_000_000
)

// ensureDefaults fills in what was left out.
func (o *Options) ensureDefaults() {
	o.Kind = cmp.Or(o.Kind, Exclusive)
	o.Format = cmp.Or(o.Format, Redisson)
	o.Lease = cmp.Or(o.Lease, defaultLease)
	o.Hold = cmp.Or(o.Hold, o.Lease)
	o.MaxWaiters = cmp.Or(o.MaxWaiters, defaultMaxWaiters)
	o.ReplicaTimeout = cmp.Or(o.ReplicaTimeout, defaultReplicaTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
}

// validate reports everything that is wrong with options whose defaults are
// filled in.
func (o *Options) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch o.Kind {
	case Exclusive, Fair, Read, Write, Semaphore:
	default:
		wrong("unknown kind %q", o.Kind)
	}
	switch {
	case o.Format != Redisson && o.Format != String:
		wrong("unknown format %q", o.Format)
	case o.Format == String && o.Kind != Exclusive:
		wrong("format %s is for kind %s, not %s", String, Exclusive, o.Kind)
	}
	if semaphore := o.Kind == Semaphore; semaphore && (o.Permits < 1 || o.Permits > maxPermits) {
		wrong("permits %d is not within 1 to %d", o.Permits, maxPermits)
	} else if !semaphore && o.Permits != 0 {
		wrong("permits are for kind %s, not %s", Semaphore, o.Kind)
	}
	if o.Lease < minLease || o.Lease > maxLease {
		wrong("lease %v is not within %v to %v", o.Lease, minLease, maxLease)
	}
	if o.FenceLife != 0 && o.FenceLife < minFenceLife && !o.FencesUnused {
		wrong("fence life %v is below %v", o.FenceLife, minFenceLife)
	}
	if o.Hold < time.Millisecond {
		wrong("hold %v is below 1ms", o.Hold)
	}
	if o.Wait.Tries < 0 || o.Wait.Every < 0 || o.Wait.UpTo < 0 {
		wrong("wait %+v has a negative part", o.Wait)
	}
	if o.MaxWaitersPerKey < 0 || o.MaxWaiters < 0 || o.Replicas < 0 || o.ReplicaTimeout < 0 {
		wrong("one of MaxWaitersPerKey %d, MaxWaiters %d, Replicas %d and ReplicaTimeout %v is negative", o.MaxWaitersPerKey, o.MaxWaiters, o.Replicas, o.ReplicaTimeout)
	}
	return errors.Join(errs...)
}

type noObserver struct{}

func (noObserver) Acquired(context.Context, Result, time.Duration) {}
func (noObserver) Released(time.Duration)                          {}
func (noObserver) Lost()                                           {}

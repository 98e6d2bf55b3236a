package gate

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
)

// acquireAll takes the locks of several orders, all or none. They are taken in
// sorted order, so that two calls with orders in common cannot each hold what the
// other waits for.
func acquireAll(ctx context.Context, locker Locker, ids []string) (Lease, error) {
	if len(ids) == 1 {
		return locker.Acquire(ctx, ids[0])
	}
	held := newLeases()
	for _, id := range ids {
		lease, err := locker.Acquire(ctx, id)
		if err != nil {
			// Nothing was forwarded. What cannot be released ends by itself.
			_ = held.Release(context.WithoutCancel(ctx))
			return nil, err
		}
		held.add(lease)
	}
	return held, nil
}

// leases are those of one call for several orders. They are given up together.
type leases struct {
	all  []Lease
	lost chan struct{} // closed when one of them is lost
	once sync.Once     // closes lost
	done chan struct{} // closed when they are given up
	end  sync.Once     // closes done
}

func newLeases() *leases {
	return &leases{lost: make(chan struct{}), done: make(chan struct{})}
}

// add watches a lease until all of them are given up.
func (l *leases) add(lease Lease) {
	l.all = append(l.all, lease)
	go func() {
		select {
		case <-lease.Lost():
			l.once.Do(func() { close(l.lost) })
		case <-l.done:
		}
	}()
}

// Fence returns the first fence. FenceText has all of them.
func (l *leases) Fence() int64 { return l.all[0].Fence() }

// Owner returns the owners, joined by commas.
func (l *leases) Owner() string {
	owners := make([]string, len(l.all))
	for i, lease := range l.all {
		owners[i] = lease.Owner()
	}
	return strings.Join(owners, ",")
}

// Lost is closed when one of the leases is lost.
func (l *leases) Lost() <-chan struct{} { return l.lost }

// Release gives all of them up, whatever becomes of each.
func (l *leases) Release(ctx context.Context) error {
	return l.each(func(lease Lease) error { return lease.Release(ctx) })
}

// Hold holds all of them.
func (l *leases) Hold(ctx context.Context) error {
	return l.each(func(lease Lease) error { return lease.Hold(ctx) })
}

func (l *leases) each(do func(Lease) error) error {
	l.end.Do(func() { close(l.done) })
	var errs []error
	for _, lease := range l.all {
		errs = append(errs, do(lease))
	}
	return errors.Join(errs...)
}

// FenceText returns the fence of a lease in decimal, or the fences, joined by
// commas in the order of the keys, when it stands for several orders.
func FenceText(lease Lease) string {
	several, ok := lease.(*leases)
	if !ok {
		return strconv.FormatInt(lease.Fence(), 10)
	}
	fences := make([]string, len(several.all))
	for i, lease := range several.all {
		fences[i] = strconv.FormatInt(lease.Fence(), 10)
	}
	return strings.Join(fences, ",")
}

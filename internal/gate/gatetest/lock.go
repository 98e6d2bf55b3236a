package gatetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// Lock is a gate.Locker that excludes no call: the test decides about each Acquire. It writes
// "acquire 42", "presents outer", "gave up", "release" and "hold: reason", each after its name
// and a blank if it has a name.
type Lock struct {
	Journal *Journal // nil: none
	Name    string
	Fence   int64             // of the first order of a lease; the next ones follow; 0: 7
	Enters  string            // the owner of the lease that a call may enter again; "": none
	Grants  chan error        // a request waits for its result, nil: a lease; a nil channel: it does not wait
	Err     error             // of a request that does not wait, and ends before Acquire does; nil: it is granted
	Texts   map[string]string // stored answers by "id name"; a lease stores there
	Fault   bool              // Acquire panics

	Unsuspended, Unreleased error // of SuspendAnswers and Release
	Undo                    error // of Undone
	Mark                    int64 // of each order

	mu       sync.Mutex
	requests []gate.LockRequest
	ended    bool     // all leases are lost
	watches  []func() // called when they are
	open     int      // leases that were granted, and neither released nor held
}

// Suspended is among the Texts of a [Lock] in place of an answer that is suspended.
const Suspended = "suspended"

// Key implements gate.Locker.
func (l *Lock) Key(id string) string {
	if l.Name == "" {
		return "lock:" + id
	}
	return l.Name + ":" + id
}

// Acquire implements gate.Locker.
func (l *Lock) Acquire(ctx context.Context, request gate.LockRequest, then func(gate.Lease, error)) {
	if l.Fault {
		panic("a fault in the locker")
	}
	if l.Grants == nil && l.Err != nil { // a limit of settlements in flight, for one
		l.note("acquire ", strings.Join(request.IDs, " "))
		then(nil, l.Err)
		return
	}
	go func() {
		granted, err := l.acquire(ctx, request)
		if err != nil {
			then(nil, err)
			return
		}
		then(granted, nil)
	}()
}

// Undone implements gate.Locker: no call has undone anything, or as Undo says.
func (l *Lock) Undone(context.Context, []string, string, []int64) (bool, error) {
	if errors.Is(l.Undo, ErrUndone) {
		return true, nil
	}
	return false, l.Undo
}

// ErrUndone is the Undo of a [Lock] whose orders were undone.
var ErrUndone = errors.New("undone")

func (l *Lock) acquire(ctx context.Context, request gate.LockRequest) (*lease, error) {
	l.note("acquire ", strings.Join(request.IDs, " "))
	if request.PresentedLease != "" {
		l.note("presents ", request.PresentedLease)
	}
	if l.Journal != nil {
		l.mu.Lock()
		l.requests = append(l.requests, request)
		l.mu.Unlock()
	}
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	for _, id := range request.IDs {
		if text := l.stored(id + " " + request.Stored); text != "" {
			return nil, &gate.StoredAnswer{Text: text, Withheld: text == Suspended}
		}
	}
	l.mu.Lock()
	l.open++
	l.mu.Unlock()
	granted := &lease{lock: l, ids: request.IDs, orders: len(request.IDs), owner: "owner"}
	switch {
	case l.Enters != "" && request.PresentedLease == l.Enters:
		granted.owner = l.Enters
	case l.Name != "":
		granted.owner = l.Name + "-owner"
	}
	return granted, nil
}

// wait returns the result of an Acquire.
func (l *Lock) wait(ctx context.Context) error {
	if l.Grants == nil {
		return l.Err
	}
	select {
	case err := <-l.Grants:
		return err
	case <-ctx.Done():
		l.note("gave up")
		return ctx.Err()
	}
}

func (l *Lock) stored(key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Texts[key]
}

func (l *Lock) note(event ...string) {
	if l.Name != "" {
		event = append([]string{l.Name, " "}, event...)
	}
	l.Journal.Add(event...)
}

// Requests returns the requests so far, if the lock has a journal.
func (l *Lock) Requests() []gate.LockRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// Open returns how many leases were granted, and neither released nor held.
func (l *Lock) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Marked implements gate.Locker.
func (l *Lock) Marked(_ context.Context, ids []string) ([]int64, error) {
	return slices.Repeat([]int64{l.Mark}, len(ids)), nil
}

// Lose ends all leases, those to come included.
func (l *Lock) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, lost := range l.watches {
		go lost()
	}
	l.watches = nil
}

// lease is a lease of a Lock.
type lease struct {
	lock   *Lock
	ids    []string
	orders int
	owner  string
	change func() // of stored answers
	over   sync.Once
}

// end notes the end of the lease.
func (l *lease) end() {
	l.over.Do(func() {
		l.lock.mu.Lock()
		defer l.lock.mu.Unlock()
		l.lock.open--
	})
}

func (l *lease) Fences() []int64 {
	fences, first := make([]int64, l.orders), l.lock.Fence
	if first == 0 {
		first = 7
	}
	for i := range fences {
		fences[i] = first + int64(i)
	}
	return fences
}

func (l *lease) Owner() string { return l.owner }

func (l *lease) Ended() bool {
	l.lock.mu.Lock()
	defer l.lock.mu.Unlock()
	return l.lock.ended
}

func (l *lease) NotifyLost(lost func()) {
	l.lock.mu.Lock()
	defer l.lock.mu.Unlock()
	if l.lock.ended {
		go lost()
		return
	}
	l.lock.watches = append(l.lock.watches, lost)
}

func (l *lease) Release(then func(error)) {
	l.lock.note("release")
	l.end()
	if l.change != nil {
		l.lock.mu.Lock()
		l.change()
		l.lock.mu.Unlock()
	}
	then(l.lock.Unreleased)
}

// StoreAnswer implements gate.Lease.
func (l *lease) StoreAnswer(name, text, brief string, _ time.Duration) {
	l.lock.note("store ", name)
	l.change = func() {
		for i, id := range l.ids {
			if key := id + " " + name; i == 0 {
				l.lock.Texts[key] = text
			} else {
				l.lock.Texts[key] = brief
			}
		}
	}
}

// SuspendAnswers implements gate.Lease.
func (l *lease) SuspendAnswers(_ context.Context, _ time.Duration, names ...string) error {
	l.lock.note("suspend ", strings.Join(names, " "))
	l.lock.mu.Lock()
	defer l.lock.mu.Unlock()
	before := maps.Clone(l.lock.Texts)
	for _, id := range l.ids {
		for _, name := range names {
			if key := id + " " + name; l.lock.Texts[key] != "" {
				l.lock.Texts[key] = Suspended
			}
		}
	}
	l.change = func() { l.lock.Texts = before }
	return l.lock.Unsuspended
}

// ForgetAnswers implements gate.Lease.
func (l *lease) ForgetAnswers(_ time.Duration, names ...string) {
	l.lock.note("forget ", strings.Join(names, " "))
	l.change = func() {
		for _, id := range l.ids {
			for _, name := range names {
				delete(l.lock.Texts, id+" "+name)
			}
		}
	}
}

// KeepSuspended implements gate.Lease.
func (l *lease) KeepSuspended() {
	l.lock.note("keep suspended")
	l.change = nil
}

func (l *lease) Hold(reason string) {
	l.lock.note("hold: ", reason)
	l.end()
}

// Acquire returns the result of a call's lock request, which it begins with.
func Acquire(ctx context.Context, c *gate.Call) gate.Grant {
	granted := make(chan gate.Grant, 1)
	AcquireTo(ctx, c, granted)
	return <-granted
}

// AcquireTo is Acquire for a result that may take time.
func AcquireTo(ctx context.Context, c *gate.Call, granted chan<- gate.Grant) {
	if step := c.On(gate.Event{Kind: gate.Opened}); step.Work != gate.Acquire {
		panic("the call needs no lock")
	}
	c.Start(ctx, gate.Acquire, func(e gate.Event) { granted <- e.Grant })
}

// Granted reports the result of a lock request.
func Granted(c *gate.Call, g gate.Grant) gate.Step {
	return c.On(gate.Event{Kind: gate.Granted, Grant: g})
}

// Settle begins a call, and returns the step after the result of its lock request.
func Settle(ctx context.Context, c *gate.Call) gate.Step { return Granted(c, Acquire(ctx, c)) }

// Answer reports the headers of an answer.
func Answer(c *gate.Call, r *gate.Response) gate.Step {
	return c.On(gate.Event{Kind: gate.ResponseHeaders, Response: r})
}

// Finish reports the end of an answer, which is the last piece of its body.
func Finish(c *gate.Call) gate.Step { return c.On(gate.Event{Kind: gate.ResponseBody, End: true}) }

// End reports the end of the stream.
func End(c *gate.Call) gate.Step { return c.On(gate.Event{Kind: gate.StreamEnded}) }

// Work does the work of a step, and reports its end.
func Work(ctx context.Context, c *gate.Call, step gate.Step) gate.Step {
	ended := make(chan gate.Event, 1)
	c.Start(ctx, step.Work, func(e gate.Event) { ended <- e })
	return c.On(<-ended)
}

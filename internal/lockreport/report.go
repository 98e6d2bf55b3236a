package lockreport

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Lock describes a lock. Its JSON always has all keys; a key without a value is null.
// Owners are shortened, because a client that knows a whole owner can share its lease. Bytes
// outside visible ASCII are written \xNN.
type Lock struct {
	Lock        string         `json:"lock"` // its name in the configuration
	Key         string         `json:"key"`
	Kind        string         `json:"kind"` // of a held read-write lock, the side that holds it
	Format      string         `json:"format"`
	Servers     []string       `json:"servers"` // of a quorum, the servers that this report covers; null: a single server
	State       string         `json:"state"`   // free, held, other_type (no lock of this kind), unreachable
	Holders     []Holder       `json:"holders"`
	MoreHolders int            `json:"more_holders"` // holders beyond those in Holders
	Fence       *int64         `json:"fence"`        // the last granted to any holder
	Left        *admin.Seconds `json:"left_seconds"` // of the key; null: no key, or it does not expire
	Waiting     *int           `json:"waiting"`      // processes; callers for a fair lock; null: not known
	Queue       []Waiter       `json:"line"`         // of a fair lock; null: not a fair lock
	Free        *int           `json:"free"`         // free permits of a semaphore
	Permits     *int           `json:"permits"`      // in total; null: a Java service set them, and left no record
	Others      *int           `json:"others"`       // permits of other clients, without names and leases; null: not known
	Foreign     *string        `json:"holds"`        // the value of the key, if it is not a lock of this kind
	Error       *string        `json:"error"`

	lock   config.Lock
	state  redislock.State
	server Server
}

// Holder is a holder of a lock.
type Holder struct {
	Owner    string         `json:"owner"`
	Entered  int            `json:"entered"`
	Fence    *int64         `json:"fence"`
	Since    *time.Time     `json:"since"`        // if not recorded, the earliest possible; null: not known
	Age      *admin.Seconds `json:"age_seconds"`  // by the clock of Redis; if not recorded, an upper bound
	Left     *admin.Seconds `json:"left_seconds"` // null: it does not expire
	Recorded bool           `json:"recorded"`     // the holder left a record, as ordergate does
	Process  *string        `json:"process"`
	Request  *string        `json:"request"`
	LeftHeld bool           `json:"left_held"` // a hold: the call ended with an unknown outcome, and the lease is not renewed
	Reason   *string        `json:"reason"`    // for the hold
}

// Waiter waits for a fair lock.
type Waiter struct {
	Owner string        `json:"owner"`
	Left  admin.Seconds `json:"left_seconds"` // until the queue skips this waiter, unless it tries again
}

// The states of a lock.
const (
	StateFree        = "free"
	StateHeld        = "held"
	StateOther       = "other_type"
	StateUnreachable = "unreachable"
)

func newLock(name string, lock config.Lock, s redislock.State, server Server) Lock {
	r := Lock{
		Lock: name, Key: admin.Visible(s.Key), Kind: string(s.Kind), Format: string(s.Format), State: StateFree,
		Holders: []Holder{}, MoreHolders: s.More, Fence: admin.NilIf(0, s.Fence), Left: timeLeft(s.TTL),
		Waiting: admin.NilIf(-1, s.Waiting), lock: lock, state: s, server: server,
	}
	if lock.Kind == config.LockQuorum {
		r.Kind, r.Servers = lock.Kind, []string{*server.Address}
	}
	switch {
	case s.Foreign != "":
		r.State, r.Foreign = StateOther, &s.Foreign
	case s.Held():
		r.State = StateHeld
	}
	for _, h := range s.Holders {
		r.Holders = append(r.Holders, newHolder(h, s.At))
	}
	if s.Kind == redislock.Fair {
		r.Queue = []Waiter{}
	}
	for _, w := range s.Line {
		r.Queue = append(r.Queue, Waiter{ShortOwner(w.Owner), admin.SecondsOf(w.Until.Sub(s.At))})
	}
	if s.Kind == redislock.Semaphore && s.Foreign == "" {
		r.Free, r.Permits = &s.Free, admin.NilIf(0, s.Permits)
		if s.TTL == 0 && s.Permits == 0 { // no client has taken a permit yet
			r.Free, r.Permits = &lock.Permits, &lock.Permits
		}
		if r.Permits != nil {
			r.Others = new(max(0, *r.Permits-*r.Free-len(s.Holders)-s.More))
		}
	}
	return r
}

func newHolder(h redislock.Holder, now time.Time) Holder {
	r := Holder{
		Owner: ShortOwner(h.Owner), Entered: h.Entered, Fence: admin.NilIf(0, h.Fence), Recorded: h.Recorded,
		Process: admin.NilIf("", admin.Visible(h.Process)), Request: admin.NilIf("", admin.Visible(h.Request)),
		LeftHeld: h.Held, Reason: admin.NilIf("", admin.Visible(h.Reason)),
	}
	if h.TTL != redislock.NoEnd {
		r.Left = new(admin.SecondsOf(h.TTL))
	}
	if !h.Since.IsZero() {
		r.Since = new(h.Since.UTC())
		r.Age = new(admin.SecondsOf(max(0, now.Sub(h.Since)))) // Since is by another clock than now
	}
	return r
}

// Renewed returns when a holder renewed its lease for the last time, by Redis's clock, and how often it
// does; zero: it has not, or is a hold, or left no record.
func (r *Lock) Renewed(h Holder) (at time.Time, every time.Duration) {
	if !h.Recorded || h.LeftHeld || h.Left == nil || h.Since == nil || r.lock.Lease == 0 {
		return at, 0
	}
	every = r.lock.Lease / 3
	if last := r.state.At.Add(time.Duration(*h.Left) - r.lock.Lease); last.Sub(*h.Since) > every/2 {
		at = last
	}
	return at, every
}

// RawKey returns the key as Redis has it.
func (r *Lock) RawKey() string { return r.state.Key }

// At returns when Redis reported the lock, by its clock.
func (r *Lock) At() time.Time { return r.state.At }

// Digest identifies the holders of a lock on all of its servers, without their names.
func Digest(reports []Lock) string {
	sum := sha256.New()
	for _, r := range reports {
		for _, h := range r.state.Holders {
			fmt.Fprintf(sum, "%q %d\n", h.Owner, h.Fence)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// timeLeft returns the time left of a key. It returns nil if the key does not exist or does
// not expire.
func timeLeft(left time.Duration) *admin.Seconds {
	if left <= 0 {
		return nil
	}
	return new(admin.SecondsOf(left))
}

// ShownOwner is the number of bytes shown of an owner.
const ShownOwner = 8

// ShortOwner shortens an owner to a distinct part. It keeps a short end after a colon, which
// distinguishes the threads of one Java service.
func ShortOwner(owner string) string {
	if len(owner) <= ShownOwner {
		return admin.Visible(owner)
	}
	end := ""
	if colon := strings.LastIndexByte(owner, ':'); colon >= ShownOwner && len(owner)-colon <= ShownOwner {
		end = owner[colon:]
	}
	return admin.Visible(owner[:ShownOwner] + "..." + end)
}

// Describe writes one line for each known property of a lock, on all of its servers.
func Describe(w io.Writer, reports []Lock) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s%s\n", name, fmt.Sprintf(format, args...))
	}
	first := reports[0]
	line("lock", "%s (%s, format %s)", first.Lock, first.lock.Kind, first.Format)
	line("key", "%s", first.Key)
	if first.server.Address != nil {
		line("quorum", "%s", quorumState(reports))
	}
	for _, r := range reports {
		if r.server.Address != nil {
			line("server", "%s", *r.server.Address)
		}
		r.describe(line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Lock) describe(line func(name, format string, args ...any)) {
	switch r.State {
	case StateUnreachable:
		line("state", "not known: %s", *r.Error)
		return
	case StateOther:
		line("state", "not a lock of this kind: the key holds %s", *r.Foreign)
	case StateHeld:
		side := ""
		if r.Kind != r.lock.Kind { // the other side of a read-write lock
			side = " by the other side (" + r.Kind + ")"
		}
		line("state", "held%s", side)
	default:
		line("state", "free")
	}
	if r.Free != nil {
		of := ""
		if r.Permits != nil {
			of = fmt.Sprintf(" of %d", *r.Permits)
		}
		line("permits", "%d%s free", *r.Free, of)
		if r.Permits == nil {
			line("others", "not known: Java has set the number of permits, and Redis did not return it")
		}
		if r.Others != nil && *r.Others > 0 {
			line("others", "%d permits are held by others than ordergate, without names and leases", *r.Others)
		}
	}
	for _, h := range r.Holders {
		h.describe(line)
	}
	if r.MoreHolders > 0 {
		line("holders", "and %d more", r.MoreHolders)
	}
	if r.Fence != nil {
		line("last fence", "%d", *r.Fence)
	}
	if r.State == StateOther {
		return
	}
	switch {
	case r.Waiting == nil:
		line("waiting", "not known: Redis did not return it")
	case r.Queue != nil:
		line("waiting", "%d", *r.Waiting)
	case *r.Waiting == 1:
		line("waiting", "1 process")
	default:
		line("waiting", "%d processes", *r.Waiting)
	}
	for i, w := range r.Queue {
		line(fmt.Sprintf("  %d.", i+1), "%s, skipped in %s unless it tries again", w.Owner, duration(w.Left))
	}
}

func (h *Holder) describe(line func(name, format string, args ...any)) {
	line("holder", "%s", h.Owner)
	switch {
	case h.Since == nil:
		line("  since", "not known: it left no record, as a Java service does not")
	case h.Recorded:
		line("  since", "%s, %s ago", h.Since.Format(time.RFC3339), duration(*h.Age))
	default:
		line("  since", "%s or later, at most %s ago: it left no record (yet), as a Java service does not", h.Since.Format(time.RFC3339), duration(*h.Age))
	}
	if h.Request != nil {
		line("  request", "%s", *h.Request)
	}
	if h.Process != nil {
		line("  process", "%s", *h.Process)
	}
	if h.Fence != nil {
		line("  fence", "%d", *h.Fence)
	}
	if h.Entered > 1 {
		line("  entered", "%d times", h.Entered)
	}
	if h.LeftHeld {
		text := "its call is over"
		if h.Reason != nil {
			text += "; " + *h.Reason
		}
		line("  left held", "%s", text)
	}
	switch {
	case h.Left == nil:
		line("  ends", "never, unless it is released")
	case h.LeftHeld:
		line("  ends in", "%s: it is no longer renewed", duration(*h.Left))
	default:
		line("  ends in", "%s unless it is renewed", duration(*h.Left))
	}
}

// duration formats s, rounded to 0.1 s below a minute and to 1 s from a minute on.
func duration(s admin.Seconds) string {
	d := time.Duration(s)
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// lockReports is what locks show prints as JSON: a lock as each of its servers has
// it.
type lockReports struct {
	Locks []lockReport `json:"locks"`
}

// lockReport is what is told of a lock. All of its keys are always there in JSON;
// null is what a lock does not have. Owners are cut short, since whoever knows a
// whole one can take part in its lease; bytes outside visible ASCII are written
// \xNN.
type lockReport struct {
	Lock        string         `json:"lock"` // its name in the configuration
	Key         string         `json:"key"`
	Kind        string         `json:"kind"` // of a read-write lock that is held, the side that holds it
	Format      string         `json:"format"`
	Servers     []string       `json:"servers"` // of a quorum, those that this is about; null: there is only one
	State       string         `json:"state"`   // free, held, other_type (no lock of this kind), unreachable
	Holders     []holderReport `json:"holders"`
	MoreHolders int            `json:"more_holders"` // than there are in Holders
	Fence       *int64         `json:"fence"`        // the last, whoever had it
	Left        *admin.Seconds `json:"left_seconds"` // of the key; null: there is none, or it has no end
	Waiting     *int           `json:"waiting"`      // processes; of a fair lock callers. null: Redis does not tell
	Queue       []waiterReport `json:"line"`         // of a fair lock; null: it is none
	Free        *int           `json:"free"`         // permits of a semaphore
	Permits     *int           `json:"permits"`      // in all; null: Java has set them, and Redis does not tell
	Others      *int           `json:"others"`       // permits that others than ordergate have, without names and leases; null: not known
	Foreign     *string        `json:"holds"`        // what the key holds that is no lock of this kind
	Error       *string        `json:"error"`

	lock   config.Lock
	state  redislock.State
	server lockServer
}

type holderReport struct {
	Owner    string         `json:"owner"`
	Entered  int            `json:"entered"`
	Fence    *int64         `json:"fence"`
	Since    *time.Time     `json:"since"`        // the earliest, if not recorded; null: not known
	Age      *admin.Seconds `json:"age_seconds"`  // by the clock of Redis; the most, if not recorded
	Left     *admin.Seconds `json:"left_seconds"` // null: without an end
	Recorded bool           `json:"recorded"`     // it said who it is, as ordergate does
	Process  *string        `json:"process"`
	Request  *string        `json:"request"`
	LeftHeld bool           `json:"left_held"` // its call is over and nobody knows its outcome: it is renewed no more
	Reason   *string        `json:"reason"`    // for that
}

type waiterReport struct {
	Owner string        `json:"owner"`
	Left  admin.Seconds `json:"left_seconds"` // until it is passed over unless it is heard of again
}

// The states of a lock.
const (
	stateFree        = "free"
	stateHeld        = "held"
	stateOther       = "other_type"
	stateUnreachable = "unreachable"
)

func newLockReport(name string, lock config.Lock, s redislock.State, server lockServer) lockReport {
	r := lockReport{
		Lock: name, Key: visible(s.Key), Kind: string(s.Kind), Format: string(s.Format), State: stateFree,
		Holders: []holderReport{}, MoreHolders: s.More, Fence: nilIf(0, s.Fence), Left: timeLeft(s.TTL),
		Waiting: nilIf(-1, s.Waiting), lock: lock, state: s, server: server,
	}
	if lock.Kind == config.LockQuorum {
		r.Kind, r.Servers = lock.Kind, []string{*server.address}
	}
	switch {
	case s.Foreign != "":
		r.State, r.Foreign = stateOther, &s.Foreign
	case s.Held():
		r.State = stateHeld
	}
	for _, h := range s.Holders {
		r.Holders = append(r.Holders, newHolderReport(h, s.At))
	}
	if s.Kind == redislock.Fair {
		r.Queue = []waiterReport{}
	}
	for _, w := range s.Line {
		r.Queue = append(r.Queue, waiterReport{shortOwner(w.Owner), admin.SecondsOf(w.Until.Sub(s.At))})
	}
	if s.Kind == redislock.Semaphore && s.Foreign == "" {
		r.Free, r.Permits = &s.Free, nilIf(0, s.Permits)
		if s.TTL == 0 && s.Permits == 0 { // nobody has had a permit yet
			r.Free, r.Permits = &lock.Permits, &lock.Permits
		}
		if r.Permits != nil {
			r.Others = new(max(0, *r.Permits-*r.Free-len(s.Holders)-s.More))
		}
	}
	return r
}

func newHolderReport(h redislock.Holder, now time.Time) holderReport {
	r := holderReport{
		Owner: shortOwner(h.Owner), Entered: h.Entered, Fence: nilIf(0, h.Fence), Recorded: h.Recorded,
		Process: nilIf("", visible(h.Process)), Request: nilIf("", visible(h.Request)),
		LeftHeld: h.Held, Reason: nilIf("", visible(h.Reason)),
	}
	if h.TTL != redislock.NoEnd {
		r.Left = new(admin.SecondsOf(h.TTL))
	}
	if !h.Since.IsZero() {
		r.Since = new(h.Since.UTC())
		r.Age = new(admin.SecondsOf(max(0, now.Sub(h.Since)))) // clocks differ
	}
	return r
}

// nilIf returns nil for the value that stands for none.
func nilIf[T comparable](none, value T) *T {
	if value == none {
		return nil
	}
	return &value
}

// timeLeft returns what is left of a key; nil when there is none, or it does
// not end.
func timeLeft(left time.Duration) *admin.Seconds {
	if left <= 0 {
		return nil
	}
	return new(admin.SecondsOf(left))
}

// shortOwner returns enough of an owner's name to tell it from others. The end,
// behind a colon, tells the threads of one Java service apart.
func shortOwner(owner string) string {
	if len(owner) <= shownOwner {
		return visible(owner)
	}
	end := ""
	if colon := strings.LastIndexByte(owner, ':'); colon >= shownOwner && len(owner)-colon <= shownOwner {
		end = owner[colon:]
	}
	return visible(owner[:shownOwner] + "..." + end)
}

// describe writes a line for each thing there is to tell of one lock, on all of
// its servers.
func describe(w io.Writer, reports []lockReport) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s%s\n", name, fmt.Sprintf(format, args...))
	}
	first := reports[0]
	line("lock", "%s (%s, format %s)", first.Lock, first.lock.Kind, first.Format)
	line("key", "%s", first.Key)
	if first.server.address != nil {
		line("quorum", "%s", quorumState(reports))
	}
	for _, r := range reports {
		if r.server.address != nil {
			line("server", "%s", *r.server.address)
		}
		r.describe(line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *lockReport) describe(line func(name, format string, args ...any)) {
	switch r.State {
	case stateUnreachable:
		line("state", "not known: %s", *r.Error)
		return
	case stateOther:
		line("state", "not a lock of this kind: the key holds %s", *r.Foreign)
	case stateHeld:
		side := ""
		if r.Kind != r.lock.Kind { // of a read-write lock, the other
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
			line("others", "not known: Java has set how many permits there are, and Redis does not tell")
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
	if r.State == stateOther {
		return
	}
	switch {
	case r.Waiting == nil:
		line("waiting", "not known: Redis does not tell")
	case r.Queue != nil:
		line("waiting", "%d", *r.Waiting)
	case *r.Waiting == 1:
		line("waiting", "1 process")
	default:
		line("waiting", "%d processes", *r.Waiting)
	}
	for i, w := range r.Queue {
		line(fmt.Sprintf("  %d.", i+1), "%s, passed over in %s unless it is heard of again", w.Owner, duration(w.Left))
	}
}

func (h *holderReport) describe(line func(name, format string, args ...any)) {
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
		line("  ends in", "%s: it is renewed no more", duration(*h.Left))
	default:
		line("  ends in", "%s unless it is renewed", duration(*h.Left))
	}
}

// duration writes a length of time to a tenth of a second, or from a minute on to a
// second.
func duration(s admin.Seconds) string {
	d := time.Duration(s)
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

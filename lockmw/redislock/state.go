package redislock

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// State is what Redis said of a lock at one moment.
type State struct {
	Key    string
	Kind   Kind // of a read-write lock that is held, the side that holds it
	Format Format
	At     time.Time // by the clock of Redis

	Holders []Holder      // none: the lock is free, or only Java has permits of it
	More    int           // holders beyond those in Holders, which are about 1,000 at most
	Fence   int64         // the last that was granted, to whomever; 0: none that is remembered
	TTL     time.Duration // what is left of the key, or NoEnd; 0: there is no key

	// Waiting is how many wait: of a fair lock those in its queue, of others the
	// subscriptions to its channel, one for each process that waits. -1: not
	// known.
	Waiting int
	Line    []Waiter // of a fair lock, in their order: of the first 1,000, those that are alive

	Free    int // permits of a semaphore
	Permits int // that it has in all; 0: Java has set them, and leaves no record

	Foreign string // what the key holds if that is no lock of this kind
}

// Holder is one holder of a lock.
type Holder struct {
	// Owner is its name, of a writer without Redisson's ":write". Show the beginning
	// only: any client that knows that of a Locker's lease can present it (see [Reenter]).
	Owner   string
	Entered int // how often
	// Fence is that of its grant; if not Recorded, perhaps that of an earlier holder.
	// 0 where several may hold the lock.
	Fence int64
	// Since is when it asked for the lock, by its own clock. If not Recorded, it is
	// the earliest that it can have it since: the time of the last fence, which may
	// be an earlier holder's. Zero: not known.
	Since time.Time
	TTL   time.Duration // what is left of its lease, or NoEnd

	Recorded bool // it left a record, as a Locker does after a quarter of a second
	Process  string
	Request  string
	// Held says that its call is over, with an unknown outcome: the lock is
	// renewed no more, and ends with TTL. Reason tells why.
	Held   bool
	Reason string
}

// Waiter is one in the queue of a fair lock.
type Waiter struct {
	Owner string
	Until time.Time // when it is passed over unless it asks again
}

// NoEnd is the time left of what does not end by itself.
const NoEnd time.Duration = -1

// Held reports whether the lock has a holder, or a permit of it.
func (s *State) Held() bool {
	permits := s.Kind == Semaphore && s.TTL != 0 && (s.Free <= 0 || s.Free < s.Permits)
	return s.Foreign == "" && (len(s.Holders) > 0 || permits)
}

const (
	writeSuffix = ":write" // of a writer's owner, as Redisson has it
	dead        = -2       // what PTTL says of a key that does not exist
	// firstTimedFence is the smallest fence that is taken for microseconds since
	// 1970: it would be of the year 2001. Redisson's own count from 1.
	firstTimedFence = 1e15
)

// decode fills in the state of a lock, whose kind is set, from what
// lua/inspect.lua returned.
func (s *State) decode(answer []string) error {
	r := reply{rest: answer}
	keyType := r.text()
	s.At, s.TTL = time.UnixMicro(r.number()), timeLeft(r.number())
	s.Fence, _ = strconv.ParseInt(r.text(), 10, 64) // what is no number is no fence
	size, mode := r.number(), r.text()
	counter, given, ended := r.text(), r.text(), r.number()
	count := int(r.number())
	s.Foreign = s.foreign(keyType, mode, counter, size)
	if side := Kind(mode); s.Foreign == "" && mode != "" {
		s.Kind = side
	}
	listed := int(r.number())
	for range listed {
		s.hold(r.text(), r.text(), r.number(), r.text(), count)
	}
	s.More = count - listed
	s.Waiting = int(r.number())
	for range r.number() {
		w := Waiter{Owner: r.text(), Until: time.UnixMilli(r.number())}
		if w.Until.After(s.At) {
			s.Line = append(s.Line, w)
		}
	}
	if s.Kind == Semaphore {
		s.permits(counter, given, int(ended), count)
	}
	if s.Foreign != "" {
		s.Holders, s.More = nil, 0
	}
	return r.err()
}

// reply is a list of texts that is read from its beginning.
type reply struct {
	rest []string
	bad  bool
}

func (r *reply) text() string {
	if len(r.rest) == 0 {
		r.bad = true
		return ""
	}
	text := r.rest[0]
	r.rest = r.rest[1:]
	return text
}

// number reads an integer, which may be written as Redis writes scores.
func (r *reply) number() int64 {
	text := r.text()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(text, 64)
		r.bad = r.bad || err != nil
		n = int64(f)
	}
	return n
}

func (r *reply) err() error {
	if r.bad || len(r.rest) > 0 {
		return errors.New("the script's answer is malformed")
	}
	return nil
}

// timeLeft reads what PTTL says.
func timeLeft(ms int64) time.Duration {
	switch {
	case ms == dead:
		return 0
	case ms < 0:
		return NoEnd
	}
	return time.Duration(ms) * time.Millisecond
}

// foreign says what a key holds if that is no lock of the state's kind, as far as
// its outside shows.
func (s *State) foreign(keyType, mode, counter string, size int64) string {
	want := "hash"
	if s.Format == String || s.Kind == Semaphore {
		want = "string"
	}
	_, notNumber := strconv.Atoi(counter)
	switch {
	case keyType == "none":
		return ""
	case keyType == "zset":
		return "a sorted set"
	case keyType != want:
		return "a " + keyType
	case s.Format == String && size > mostListed:
		return fmt.Sprintf("a string of %d bytes", size)
	case s.Kind == Semaphore && notNumber != nil:
		return "a string that is no number"
	case want == "string":
		return ""
	case s.rw() && mode == "":
		return "a lock that is no read-write lock"
	case s.rw() && mode != string(Read) && mode != string(Write):
		return "a hash that is no lock"
	case !s.rw() && mode != "":
		return "a read-write lock"
	}
	return ""
}

func (s *State) rw() bool { return s.Kind == Read || s.Kind == Write }

// hold adds one of count holders, or finds that the key holds no lock.
func (s *State) hold(owner, entered string, left int64, record string, count int) {
	h := Holder{Owner: owner, TTL: timeLeft(left)}
	var err error
	h.Entered, err = strconv.Atoi(entered)
	if err != nil || count > 1 && (s.Kind == Exclusive || s.Kind == Fair) {
		s.Foreign = cmp.Or(s.Foreign, "a hash that is no lock")
	}
	if s.rw() {
		var writes bool
		h.Owner, writes = strings.CutSuffix(owner, writeSuffix)
		// A writer may read as well; a reader whose entries have all ended is dead.
		if writes != (s.Kind == Write) || left == dead {
			return
		}
	}
	if !s.Kind.shared() {
		h.Fence = s.Fence
	}
	var r Record
	granted := time.UnixMicro(h.Fence)
	switch {
	case record != "" && json.Unmarshal([]byte(record), &r) == nil && !r.Since.IsZero():
		h.Recorded, h.Since, h.Process, h.Request, h.Held, h.Reason = true, r.Since, r.Process, r.Request, r.Held, r.Reason
	case h.Fence >= firstTimedFence && !granted.After(s.At):
		h.Since = granted
	}
	s.Holders = append(s.Holders, h)
}

func (s *State) permits(counter, given string, ended, count int) {
	s.Permits, _ = strconv.Atoi(given) // nothing where Java gave them
	free, err := strconv.Atoi(counter)
	if err != nil { // the next acquire makes it
		s.Free = max(0, s.Permits-count)
		return
	}
	s.Free = free + ended
}

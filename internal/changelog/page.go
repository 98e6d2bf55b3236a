package changelog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// entry is one line of the log: an ID, or a doubt.
type entry struct {
	seq       uint64 // dense, from 1
	sub       uint64 // 0 but for entries of others
	id        string // "" for a doubt
	doubt     Doubt
	text      string // of a doubt, as the log has it
	at        int64  // of a doubt of kind Running or Term: the server's time then or later, ms, 0 if it is not known
	nonce     string
	malformed string // what is wrong with it, "" if nothing is
}

// page is one atomic read of the log.
type page struct {
	logID       string // the log's identity
	tail        uint64 // sequence number of the log's last entry
	serverMs    int64  // the server's time, ms
	leaseEpoch  string
	away        string // a member whose lease is over
	member      bool   // whether the reader is a member
	inbox       int64  // IDs left in the inbox
	entries     []entry
	members     []string      // all; none unless the reader's lease was renewed
	blindReason string        // why nobody would notice a failover, "" if everybody does
	applied     uint64        // up to which entry all readers have the log
	registered  bool          // whether the reader was noted
	window      time.Duration // the longest of any reader, before this read
	from        uint64        // with which entry it begins: one that was asked for, or the last that was heard of
}

// drained is how many IDs a page takes from the inbox.
const inboxBatch = 1000

// ask runs the script that reads a page from an entry on, and renews a member's lease
// as of a moment; nil: none. For a reader, it reports that entry, and what was heard of behind it;
// "": for none. Its error is one of the package's, or ctx's.
func (l *Log) requestPage(ctx context.Context, m *Member, confirmedAt time.Time, from entry, count int, reader, leaseEpoch, heard string) (page, error) {
	name, renewal, lease, twin := "", serverTime{}, time.Duration(0), 0
	if m != nil {
		name, renewal, lease = m.name, m.nextRenewal(confirmedAt), m.lease
		if m.hadDuplicate.Load() {
			twin = 1
		}
	}
	args := append(make([]any, 0, 13+len(l.opts.Require)), from.seq, count,
		name, renewal.ms, renewal.leaseEpoch, lease.Milliseconds(), l.opts.Expel.Milliseconds(), inboxBatch, twin, reader, from.nonce, heard, leaseEpoch)
	for _, r := range l.opts.Require {
		args = append(args, r)
	}
	sent := time.Now()
	_, cmd := l.runScript(ctx, l.page, l.keys, args...)
	reply, err := cmd.Slice()
	if err != nil {
		return page{}, l.readError(err)
	}
	p, err := parsePage(reply)
	if err != nil {
		return page{}, l.brokenError(err)
	}
	if m != nil && !m.noteReply(p, sent) {
		return page{}, fmt.Errorf("%w: reading %s: %w", ErrUnavailable, l.keys[0], errDemoted)
	}
	l.mu.Lock()
	l.peers.note(p.leaseEpoch, p.window, l.opts.Lease)
	l.mu.Unlock()
	l.noteProgress(p.leaseEpoch, p.applied)
	return p, nil
}

// parsePage reads the reply of page.lua. An error says what is malformed; what is
// wrong with an entry stays with that.
func parsePage(reply []any) (page, error) {
	var p page
	var tail, server, least, window, from string
	var mine, noted int64
	var rows, members []any
	ok := len(reply) == 14
	for i, into := range []any{&p.logID, &tail, &server, &p.leaseEpoch, &p.away, &mine, &p.inbox, &rows, &members, &p.blindReason, &least, &window, &noted, &from} {
		ok = ok && assign(into, reply[i])
	}
	if !ok {
		return page{}, errors.New("a page of other parts")
	}
	p.member, p.registered = mine == 1, noted == 1
	var err error
	if p.tail, err = strconv.ParseUint(tail, 10, 64); err != nil {
		return p, fmt.Errorf("its counter is %q, not a number", tail)
	}
	if p.serverMs, err = strconv.ParseInt(server, 10, 64); err != nil {
		return p, fmt.Errorf("the time is %q, not a number", server)
	}
	if p.applied, err = strconv.ParseUint(least, 10, 64); err != nil {
		return p, fmt.Errorf("what its readers have is %q, not a number", least)
	}
	longest, err := strconv.ParseInt(window, 10, 64)
	if err != nil {
		return p, fmt.Errorf("its longest window is %q, not a number", window)
	}
	if p.from, err = strconv.ParseUint(from, 10, 64); err != nil {
		return p, fmt.Errorf("it begins with %q, not a number", from)
	}
	p.window = time.Duration(longest) * time.Millisecond
	for _, name := range members {
		text, _ := name.(string)
		p.members = append(p.members, text)
	}
	p.entries = make([]entry, len(rows))
	for i, row := range rows {
		p.entries[i] = parseEntry(row)
		e := &p.entries[i]
		if e.doubt.Kind == Failover {
			e.at = epochBegan(p.leaseEpoch)
		}
		if e.at > 0 {
			e.doubt.Age = max(0, time.Duration(p.serverMs-e.at)*time.Millisecond)
		}
	}
	return p, nil
}

// eraBegan returns when an era began, by the server's clock in ms; 0: it does not tell. No
// doubt of kind Term is younger: each begins an era.
func epochBegan(leaseEpoch string) int64 {
	parts := strings.Split(leaseEpoch, ".")
	if len(parts) != 3 {
		return 0
	}
	seconds, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return 0
	}
	return (seconds + 1) * 1000
}

// assign stores a value if it is of the type that is pointed to.
func assign(into, value any) (ok bool) {
	switch into := into.(type) {
	case *string:
		*into, ok = value.(string)
	case *int64:
		*into, ok = value.(int64)
	case *[]any:
		*into, ok = value.([]any)
	}
	return ok
}

// parseEntry reads one entry of a stream: its ID, and its fields in order.
func parseEntry(row any) (e entry) {
	parts, ok := row.([]any)
	if !ok || len(parts) != 2 {
		return entry{malformed: "an entry that is no entry"}
	}
	name, _ := parts[0].(string)
	number, rest, _ := strings.Cut(name, "-")
	var errs [2]error
	e.seq, errs[0] = strconv.ParseUint(number, 10, 64)
	e.sub, errs[1] = strconv.ParseUint(rest, 10, 64)
	if errs != [2]error{} || e.sub != 0 {
		e.malformed = fmt.Sprintf("entry %q was not written by ordergate", name)
		return e
	}
	fields, _ := parts[1].([]any)
	if len(fields) != 4 || fields[2] != "n" {
		e.malformed = fmt.Sprintf("entry %s is malformed", name)
		return e
	}
	value, _ := fields[1].(string)
	e.nonce, _ = fields[3].(string)
	switch {
	case fields[0] == "doubt":
		e.doubt, e.text = parseDoubt(value), value
		if e.doubt.Kind == Running {
			e.doubt.Reason, e.at = cutTime(e.doubt.Reason)
		}
	case fields[0] != "id":
		e.malformed = fmt.Sprintf("entry %s is malformed", name)
	case len(value) == 0 || len(value) > MaxIDBytes:
		e.malformed = fmt.Sprintf("entry %s has an ID of %d bytes", name, len(value))
	default:
		e.id = value
	}
	return e
}

// cutTime takes the server's time, in ms, off the reason for a doubt; 0: there is none.
func cutTime(text string) (reason string, at int64) {
	number, reason, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return text, 0
	}
	return reason, at
}

// readError tells a log that is no log from a Redis that does not answer.
func (l *Log) readError(err error) error {
	if _, ok := errors.AsType[redis.Error](err); ok && strings.Contains(err.Error(), "WRONGTYPE") {
		return l.brokenError(fmt.Errorf("its keys hold something else: %w", err))
	}
	return fmt.Errorf("%w: reading %s: %w", ErrUnavailable, l.keys[0], err)
}

func (l *Log) brokenError(cause error) error {
	return fmt.Errorf("%w: %s: %w; delete %s", ErrBroken, l.keys[0], cause, strings.Join(l.keys, ", "))
}

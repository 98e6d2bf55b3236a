package changelog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/orderid"
)

// entry is one entry of the log: an ID, or a doubt.
type entry struct {
	seq       uint64 // dense, from 1
	sub       uint64 // 0 except in entries of other programs
	id        string // "" for a doubt
	parts     string // the names of the ID's parts, see [fieldID]; "": none, or unknown
	inbox     bool   // the ID is from the inbox
	doubt     Doubt
	text      string // of a doubt, as the log stores it
	at        int64  // of a doubt of kind Running or Failover: the server's time of the entry or later in ms, 0 if unknown
	nonce     string
	malformed string // what is wrong with it, "" if nothing is
}

// page is one atomic read of the log.
type page struct {
	logID       string // the log's identity
	tail        uint64 // sequence number of the log's last entry
	serverMs    int64  // the server's time in ms
	leaseEpoch  string
	away        string // a member whose lease is over
	member      bool   // the reader is a member
	inbox       int64  // IDs left in the inbox
	entries     []entry
	members     []string      // all members; none unless the reader's lease was renewed
	blindReason string        // why the server reports no replication ID, "" if it does
	applied     uint64        // all readers have applied the log up to this entry
	registered  bool          // the log lists the reader
	window      time.Duration // the longest of any reader, before this read
	from        uint64        // the first entry: the one requested, or the last received
}

// inboxBatch is how many IDs a page takes from the inbox.
const inboxBatch = 1000

// requestPage runs the script that reads a page from an entry on. It renews the lease of m, if any,
// as of confirmedAt. Unless reader is "", it reports that entry and the received entries for the
// reader. The error is one of the package's, or that of ctx.
func (l *Log) requestPage(ctx context.Context, m *Member, confirmedAt time.Time, from entry, count int, reader, leaseEpoch, received string) (page, error) {
	name, renewal, lease, duplicate := "", serverTime{}, time.Duration(0), 0
	if m != nil {
		name, renewal, lease = m.name, m.nextRenewal(confirmedAt), m.lease
		if m.hadDuplicate.Load() {
			duplicate = 1
		}
	}
	args := append(make([]any, 0, 13+len(l.opts.Require)), from.seq, count,
		name, renewal.ms, renewal.leaseEpoch, lease.Milliseconds(), l.opts.Expel.Milliseconds(), inboxBatch, duplicate, reader, from.nonce, received, leaseEpoch)
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
		return page{}, fmt.Errorf("%w: reading %s: %w", ErrUnavailable, l.keys[keyLog], errDemoted)
	}
	l.mu.Lock()
	l.peers.note(p.leaseEpoch, p.window, l.opts.Lease)
	l.mu.Unlock()
	l.noteProgress(p.leaseEpoch, p.applied)
	return p, nil
}

// parsePage parses the reply of page.lua. The error describes a malformed page; a malformed entry
// describes itself.
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
		return page{}, errors.New("a page of unexpected form")
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
		return p, fmt.Errorf("the position of its readers is %q, not a number", least)
	}
	longest, err := strconv.ParseInt(window, 10, 64)
	if err != nil {
		return p, fmt.Errorf("its longest window is %q, not a number", window)
	}
	if p.from, err = strconv.ParseUint(from, 10, 64); err != nil {
		return p, fmt.Errorf("its first entry is %q, not a number", from)
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

// epochBegan returns the start of a lease epoch by the server's clock in ms; 0: it is unknown. No
// doubt of kind Failover is younger: each starts a lease epoch.
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

// assign stores a value if its type matches.
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

// parseEntry parses one entry of a stream: its ID, and its fields in order.
func parseEntry(row any) (e entry) {
	parts, ok := row.([]any)
	if !ok || len(parts) != 2 {
		return entry{malformed: "an entry of unexpected form"}
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
	case !isIDField(fields[0]):
		e.malformed = fmt.Sprintf("entry %s is malformed", name)
	case len(value) == 0 || len(value) > orderid.MaxBytes:
		e.malformed = fmt.Sprintf("entry %s has an ID of %d bytes", name, len(value))
	default:
		e.id, e.parts, e.inbox = value, partsOf(fields[0]), fields[0] == fieldInbox
	}
	return e
}

// cutTime cuts the server's time in ms off the reason of a doubt; 0: there is none.
func cutTime(text string) (reason string, at int64) {
	number, reason, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return text, 0
	}
	return reason, at
}

// readError distinguishes keys of another type from a Redis that does not answer.
func (l *Log) readError(err error) error {
	if _, ok := errors.AsType[redis.Error](err); ok && strings.Contains(err.Error(), "WRONGTYPE") {
		return l.brokenError(fmt.Errorf("its keys hold something else: %w", err))
	}
	return fmt.Errorf("%w: reading %s: %w", ErrUnavailable, l.keys[keyLog], err)
}

func (l *Log) brokenError(cause error) error {
	return fmt.Errorf("%w: %s: %w; delete %s", ErrBroken, l.keys[keyLog], cause, strings.Join(l.keys, ", "))
}

package changelog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// entry is one line of the log.
type entry struct {
	seq   uint64 // dense, from 1
	id    string
	nonce string
}

// page is one atomic read of the log.
type page struct {
	epoch   string // the log's identity
	tail    uint64 // sequence number of the log's last entry
	entries []entry
}

// parsePage reads the reply of page.lua. An error says what is malformed.
func parsePage(reply []any) (page, error) {
	if len(reply) != 3 {
		return page{}, fmt.Errorf("a page of %d parts", len(reply))
	}
	epoch, ok1 := reply[0].(string)
	tail, ok2 := reply[1].(string)
	rows, ok3 := reply[2].([]any)
	if !ok1 || !ok2 || !ok3 {
		return page{}, errors.New("a page of other types")
	}
	p := page{epoch: epoch, entries: make([]entry, 0, len(rows))}
	if epoch == "" {
		return p, errors.New("its identity is gone")
	}
	var err error
	if p.tail, err = strconv.ParseUint(tail, 10, 64); err != nil {
		return p, fmt.Errorf("its counter is %q, not a number", tail)
	}
	for _, row := range rows {
		e, err := parseEntry(row)
		if err != nil {
			return p, err
		}
		p.entries = append(p.entries, e)
	}
	return p, nil
}

// parseEntry reads one entry of a stream: its ID, and its fields in order.
func parseEntry(row any) (entry, error) {
	parts, ok := row.([]any)
	if !ok || len(parts) != 2 {
		return entry{}, errors.New("an entry that is no entry")
	}
	name, _ := parts[0].(string)
	number, rest, _ := strings.Cut(name, "-")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || rest != "0" {
		return entry{}, fmt.Errorf("entry %q was not written by ordergate", name)
	}
	fields, _ := parts[1].([]any)
	if len(fields) != 4 || fields[0] != "id" || fields[2] != "n" {
		return entry{}, fmt.Errorf("entry %s is malformed", name)
	}
	id, _ := fields[1].(string)
	nonce, _ := fields[3].(string)
	if len(id) == 0 || len(id) > MaxIDBytes {
		return entry{}, fmt.Errorf("entry %s has an ID of %d bytes", name, len(id))
	}
	return entry{seq: seq, id: id, nonce: nonce}, nil
}

// after returns the entries of p that follow last, the entry applied most
// recently (of sequence number 0 if none was). It is an error, which says what is
// wrong, unless p proves that nothing was missed: the log is the one we know, the
// entry that we applied last stands where it stood, no number is left out, and the
// page ends at the log's tail or is full.
func (p page) after(epoch string, last entry, full bool) ([]entry, error) {
	if p.epoch != epoch {
		return nil, fmt.Errorf("it was recreated, or belongs to another deployment: its identity is %q, was %q", p.epoch, epoch)
	}
	if p.tail < last.seq {
		return nil, fmt.Errorf("it went back from entry %d to %d", last.seq, p.tail)
	}
	fresh := p.entries
	if last.seq > 0 {
		if len(fresh) == 0 || fresh[0].seq != last.seq {
			return nil, fmt.Errorf("entry %d is gone", last.seq)
		}
		// A log that lost its newest entries in a failover and grew again has the
		// same numbers on other entries.
		if fresh[0].nonce != last.nonce {
			return nil, fmt.Errorf("entry %d is not the one read before", last.seq)
		}
		fresh = fresh[1:]
	}
	end := last.seq
	for _, e := range fresh {
		if e.seq != end+1 {
			return nil, fmt.Errorf("entry %d is missing, the next is %d", end+1, e.seq)
		}
		end = e.seq
	}
	if end > p.tail || !full && end < p.tail {
		return nil, fmt.Errorf("it ends at entry %d, but counts %d", end, p.tail)
	}
	return fresh, nil
}

// Package audit records the manual actions of operators in a stream of Redis that all instances
// read.
//
// Start with [Append] and [Read]. [Watch] delivers the new entries to a process.
package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// Stream is the key. In a cluster it is in the slot of its name.
	Stream = "ordergate:audit"
	// maxEntries is the least number of kept entries: those of years, some 300 kB.
	maxEntries = 1_000
	// MaxReason is the length of the longest reason, in bytes.
	MaxReason = 500
)

// The actions.
const (
	Released = "released" // a lock, by force
	Loaded   = "loaded"   // IDs of a file into a filter
	LatchSet = "set"      // a countdown latch, which may have had another count
	Forgot   = "forgot"   // the stored answer of an order
)

// Entry is one action.
type Entry struct {
	At      time.Time // by the clock of Redis; set by Read
	Run     string    // equal for the entries of one run on several servers
	Who     string    // user@host
	Action  string    // one of those above
	Lock    string    // its name in the configuration
	Key     string    // of the lock, of the stored answer, or of the latch
	Holder  string    // prefixes of the owners' names
	Request string    // their requests
	Filter  string
	IDs     int
	Count   int64  // of the latch, as it was set
	Reason  string // in the operator's words
}

// fields maps the names of the stream's fields to an entry's texts.
func (e *Entry) fields() map[string]*string {
	return map[string]*string{
		"run": &e.Run, "who": &e.Who, "did": &e.Action, "lock": &e.Lock, "key": &e.Key, "holder": &e.Holder,
		"request": &e.Request, "filter": &e.Filter, "reason": &e.Reason,
	}
}

// Append adds an entry. The stream keeps about the newest thousand.
func Append(ctx context.Context, client redis.UniversalClient, e Entry) error {
	values := make(map[string]any)
	for name, text := range e.fields() {
		if *text != "" {
			values[name] = *text
		}
	}
	if e.IDs > 0 {
		values["ids"] = e.IDs
	}
	if e.Action == LatchSet {
		values["count"] = e.Count
	}
	err := client.XAdd(ctx, &redis.XAddArgs{Stream: Stream, MaxLen: maxEntries, Approx: true, Values: values}).Err()
	if err != nil {
		return fmt.Errorf("writing to %s: %w", Stream, err)
	}
	return nil
}

// Read returns the newest entries, the newest first; limit 0: all.
func Read(ctx context.Context, client redis.UniversalClient, limit int) ([]Entry, error) {
	if limit == 0 {
		limit = 10 * maxEntries // Redis keeps less
	}
	messages, err := client.XRevRangeN(ctx, Stream, "+", "-", int64(limit)).Result()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", Stream, err)
	}
	entries := make([]Entry, len(messages))
	for i := range messages {
		entries[i] = entryOf(&messages[i])
	}
	return entries, nil
}

func entryOf(m *redis.XMessage) (e Entry) {
	for name, text := range e.fields() {
		*text, _ = m.Values[name].(string)
	}
	if text, ok := m.Values["ids"].(string); ok {
		e.IDs, _ = strconv.Atoi(text) // 0 if it is not a number: people read it
	}
	if text, ok := m.Values["count"].(string); ok {
		e.Count, _ = strconv.ParseInt(text, 10, 64) // the same
	}
	ms, _, _ := strings.Cut(m.ID, "-")
	if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
		e.At = time.UnixMilli(n).UTC()
	}
	return e
}

const (
	// watchEvery is the time between two reads.
	watchEvery = 5 * time.Second
	// watchTimeout bounds one read.
	watchTimeout = 2 * time.Second
	// watchBatch is the most entries of one read: the next read continues.
	watchBatch = 100
)

// Watch calls onEntry with each entry that is appended from now on, in order, until ctx ends.
// It waits while Redis is away. It blocks.
func Watch(ctx context.Context, client redis.UniversalClient, onEntry func(Entry)) {
	last := "" // ID of the last known entry; "": not read yet
	read := func() {
		if next, err := readNew(ctx, client, last, onEntry); err == nil {
			last = next
		}
	}
	read()
	for range wait.Every(ctx, watchEvery) {
		read()
	}
}

// readNew passes the entries after last to onEntry, and returns the ID of the newest entry.
func readNew(ctx context.Context, client redis.UniversalClient, last string, onEntry func(Entry)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	if last == "" {
		newest, err := client.XRevRangeN(ctx, Stream, "+", "-", 1).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return "", err
		}
		if len(newest) == 0 {
			return "0-0", nil
		}
		return newest[0].ID, nil
	}
	entries, err := client.XRangeN(ctx, Stream, "("+last, "+", watchBatch).Result()
	if err != nil {
		return last, err
	}
	for i := range entries {
		onEntry(entryOf(&entries[i]))
		last = entries[i].ID
	}
	return last, nil
}

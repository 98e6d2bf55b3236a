package changelog

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// A log whose entries have no live source is trimmed once a snapshot has them. A snapshot is, for
// example, bits to which everything up to a mark was added. Redis keeps it in chunks beside the
// log. A reader that needs entries from before the log's start loads it, see
// [Options.LoadSnapshot].

const (
	// chunkTTL is the time to live of a chunk outside the current snapshot. Writing a whole
	// snapshot takes less time.
	chunkTTL = time.Hour
	// trimBatch keeps one removal to about a millisecond, during which Redis is blocked.
	trimBatch = 10_000
)

var (
	//go:embed adopt.lua
	adoptSource string
	//go:embed trim.lua
	trimSource string
)

// KeepBeforeMark is how many entries before a snapshot's mark should stay in the log. A reader that
// fell behind briefly then needs no snapshot, and a damaged log can be searched for recent items.
const KeepBeforeMark = 2 * recentItems

// Snapshot describes the snapshot of a log's beginning in Redis.
type Snapshot struct {
	Mark
	Token  string // part of the names of its chunks, unique to them
	Chunks int
	Bytes  int64 // of all chunks
}

// ErrNotTrimmed means that the log stays as it is, with the reason.
var ErrNotTrimmed = errors.New("the change log is not trimmed")

// Snapshot returns the current snapshot, or one without a token if there is none. It blocks for one
// round trip to Redis.
func (l *Log) Snapshot(ctx context.Context) (s Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	var has struct {
		Epoch  string `redis:"epoch"`
		Seq    uint64 `redis:"seq"`
		Nonce  string `redis:"nonce"`
		Token  string `redis:"token"`
		Chunks int    `redis:"chunks"`
		Bytes  int64  `redis:"bytes"`
	}
	if err := l.client.HGetAll(ctx, l.snapshotKey).Scan(&has); err != nil {
		return s, fmt.Errorf("%w: reading %s: %w", ErrUnavailable, l.snapshotKey, err)
	}
	return Snapshot{Mark{has.Epoch, has.Seq, has.Nonce}, has.Token, has.Chunks, has.Bytes}, nil
}

func (l *Log) chunkKey(token string, n int) string {
	return l.snapshotKey + ":" + token + ":" + strconv.Itoa(n)
}

func (l *Log) chunkKeys(s Snapshot) (keys []string) {
	for n := range s.Chunks {
		keys = append(keys, l.chunkKey(s.Token, n))
	}
	return keys
}

// PutChunk writes one chunk of a snapshot, counted from 0. [Log.Adopt] must follow within an hour.
// It blocks for one round trip.
func (l *Log) PutChunk(ctx context.Context, token string, n int, data []byte) error {
	return l.client.Set(ctx, l.chunkKey(token, n), data, chunkTTL).Err()
}

// Chunk returns one chunk. The error is redis.Nil if it is missing.
func (l *Log) Chunk(ctx context.Context, token string, n int) ([]byte, error) {
	return l.client.Get(ctx, l.chunkKey(token, n)).Bytes()
}

// Adopt replaces the current snapshot, wholly or not at all. The new one must contain everything up
// to its mark. It blocks for one round trip.
func (l *Log) Adopt(ctx context.Context, s, before Snapshot) error {
	keys := append(append(append([]string{}, l.keys...), l.snapshotKey), l.chunkKeys(s)...)
	_, cmd := l.runScript(ctx, l.adopt, append(keys, l.chunkKeys(before)...),
		s.LogID, s.Seq, s.Nonce, s.Token, s.Chunks, s.Bytes, before.Token)
	why, err := cmd.Text()
	if err == nil && why != "" {
		err = errors.New(why)
	}
	if err != nil {
		return fmt.Errorf("making a snapshot at entry %d of %s the current one: %w", s.Seq, l.keys[keyLog], err)
	}
	return nil
}

// Trim removes the entries in the current snapshot, except some before its mark, and returns how
// many. For each 10,000 of them it blocks for a millisecond and a round trip, with pauses. The
// error is [ErrNotTrimmed] if none may be removed.
func (l *Log) Trim(ctx context.Context, s Snapshot, stay int) (removed int64, err error) {
	keys := append(append(append([]string{}, l.keys...), l.snapshotKey), l.chunkKeys(s)...)
	for {
		_, cmd := l.runScript(ctx, l.trim, keys, s.Token, stay, trimBatch)
		reply, err := cmd.Slice()
		var n int64
		var why string
		switch {
		case err != nil:
			return removed, fmt.Errorf("trimming %s: %w", l.keys[keyLog], err)
		case len(reply) != 2 || !assign(&n, reply[0]) || !assign(&why, reply[1]):
			return removed, fmt.Errorf("trimming %s: unexpected reply %q", l.keys[keyLog], reply)
		case why != "":
			return removed, fmt.Errorf("%w: %s", ErrNotTrimmed, why)
		case n == 0:
			return removed, nil
		}
		removed += n
		if err := waitUntil(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return removed, err
		}
	}
}

// First returns the number of the log's first entry, 0 if it has none. It blocks for one round
// trip.
func (l *Log) First(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	rows, err := l.client.XRangeN(ctx, l.keys[keyLog], "-", "+", 1).Result()
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return parseEntry([]any{rows[0].ID, []any{}}).seq, nil
}

// WasTrimmed reports whether some entries are only in a snapshot. It blocks for one round trip.
func (l *Log) WasTrimmed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	return l.client.HExists(ctx, l.keys[keyMeta], "trimmed").Result()
}

// errTrimmed means that a log starts after the last entry read.
var errTrimmed = errors.New("the log begins later")

// firstSeq returns the number of a page's first entry, or of the next entry to come.
func (p page) firstSeq() uint64 {
	if len(p.entries) == 0 {
		return p.tail + 1
	}
	return p.entries[0].seq
}

// startsAfter reports whether a page shows that the log starts after the reader's last entry.
func (p page) startsAfter(last entry) bool {
	first := p.firstSeq()
	return first > last.seq+1 || first == last.seq+1 && last.nonce != ""
}

// loadSnapshot loads the snapshot in place of the trimmed entries, and continues where the log
// starts. It reports false if no snapshot reaches the log's start.
func (r *reader) loadSnapshot(ctx context.Context, p page) (loaded bool, err error) {
	if r.last.seq > 0 && r.leaseEpoch != "" && r.leaseEpoch != p.leaseEpoch {
		// The trimmed entries would show whether the promoted server had them. They are gone.
		r.startOver(failoverError("it was trimmed behind entry %d, and Redis restarted or failed over before that", r.last.seq))
		return true, nil
	}
	at, err := r.log.opts.LoadSnapshot(ctx)
	if err != nil {
		return false, err
	}
	first := p.firstSeq()
	if at.LogID != p.logID || at.Seq < first || at.Seq > p.tail {
		return false, nil
	}
	r.last, r.snapshotMark, r.restoring = entry{seq: first - 1}, at, true
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.log.recent.incomplete = true; r.rescanned == nil {
		// The snapshot has the items that were read.
		r.log.recent = recent{limit: r.log.recent.limit, incomplete: true, unread: r.log.recent.unread, dropped: r.log.recent.dropped}
	}
	return true, nil
}

// checkSnapshot looks for the entry of the snapshot's mark. A log that ends before it belongs to
// another snapshot.
func (r *reader) checkSnapshot(tail uint64, fresh []entry) *integrityError {
	if r.snapshotMark.Seq > tail {
		return failoverError("it ends at entry %d, and the snapshot in Redis at %d", tail, r.snapshotMark.Seq)
	}
	for _, e := range fresh {
		if e.seq != r.snapshotMark.Seq {
			continue
		}
		if e.nonce != r.snapshotMark.Nonce {
			bad := gapError("entry %d is not the one that the snapshot in Redis ends with", e.seq)
			bad.seq = e.seq
			return bad
		}
		r.snapshotMark = Mark{}
	}
	return nil
}

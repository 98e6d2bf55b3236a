package redislock

import (
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// The names beside a lock's key. Those that start with "redisson" are
// Redisson's (verified against 4.7.0), so that both sides mean the same. The scripts
// add "ordergate_grant" (lua/text.lua).
const (
	fencePrefix     = "redisson_lock_token"
	lockChannel     = "redisson_lock__channel"
	rwChannel       = "redisson_rwlock"
	permitChannel   = "redisson_sc"
	fairQueue       = "redisson_lock_queue"
	fairTimeouts    = "redisson_lock_timeout"
	readTimeouts    = "rwlock_timeout"
	recordSuffix    = "ordergate_holders" // hash {owner: Record as JSON}
	entrySuffix     = "ordergate_entry"   // sorted set {part: end in ms} of an owner, whose name follows (lua/parts.lua)
	waitingSuffix   = "ordergate_waiting" // sorted set {owner: alive until, in ms} of our waiters for a fair lock
	permitsSuffix   = "ordergate_permits" // string: the permits that we gave a semaphore
	permitsOfSuffix = "ordergate_leases"  // sorted set {owner: end in ms} of a semaphore
	storedSuffix    = "ordergate_once"    // string: a stored answer, whose name follows (lua/store.lua)
	marksSuffix     = "ordergate_undone"  // hash {name of stored answers: mark} (lua/common.lua); with a call behind it, lua/undo_alone.lua
)

// FenceKey returns the key that holds the last fence of a lock, in the lock's
// cluster slot.
func FenceKey(key string) string { return before(fencePrefix, key) }

// Channel returns the channel that the release of a lock of this kind is
// published on. A [Fair] lock has one for each waiter: this name, a colon and
// the waiter's owner.
func Channel(kind Kind, key string) string {
	switch kind {
	case Read, Write:
		return before(rwChannel, key)
	case Semaphore:
		return before(permitChannel, key)
	}
	return before(lockChannel, key)
}

// keysOfKind returns the keys that only this kind of lock has, "" for none, in the
// order that the scripts have them.
func keysOfKind(kind Kind, key string) (keys [3]string) {
	switch kind {
	case Fair:
		keys = [3]string{before(fairQueue, key), before(fairTimeouts, key), after(key, waitingSuffix)}
	case Semaphore:
		keys = [3]string{after(key, permitsOfSuffix), after(key, permitsSuffix)}
	}
	return keys
}

// before and after build a name from another as Redisson does: a name without a
// brace is put into braces whole, so that both hash to one cluster slot.
func before(prefix, key string) string {
	if strings.IndexByte(key, '{') >= 0 {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

func after(key, suffix string) string {
	if strings.IndexByte(key, '{') >= 0 {
		return key + ":" + suffix
	}
	return "{" + key + "}:" + suffix
}

// isOwner reports whether a text has the form of newOwner's.
func isOwner(text string) bool {
	const id = 36
	if len(text) < id+2 || len(text) > id+1+20 || text[id] != ':' || strings.Trim(text[id+1:], "0123456789") != "" {
		return false
	}
	u, err := uuid.Parse(text[:id])
	return err == nil && u.String() == text[:id]
}

// newOwner names a lease as Redisson names a thread of a client: a UUID and a
// number. The UUID is random for each lease, since the name is shown to the
// backend and must not tell another's.
func (l *Locker) newOwner() string {
	var text [36 + 1 + 20]byte
	id := uuid.Must(uuid.NewRandomFromReader(rand.Reader))
	encoded, _ := id.MarshalText() // never fails
	n := copy(text[:], encoded)
	text[n] = ':'
	return string(strconv.AppendUint(text[:n+1], l.serial.Add(1), 10))
}

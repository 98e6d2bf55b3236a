package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

const (
	maxLockKey = 256 // bytes, of a template; each command contains a key

	// maxFairPause bounds the interval between the tries of a fair lock's waiter. Even a tenth
	// longer, it is below the time that a waiter counts as alive (5s in package redislock).
	maxFairPause = 4 * time.Second
)

// hasUnknownKind reports whether a lock's kind or format is unusable or unknown. Checks that
// depend on them would then only report consequences of that violation.
func (v *validator) hasUnknownKind(path string, l Lock) bool {
	return !v.hasWord(path, reflect.ValueOf(l), "kind") || !v.hasWord(path, reflect.ValueOf(l), "format")
}

func (v *validator) lock(path, name string, l Lock) {
	if !v.hasUnknownKind(path, l) {
		v.ofKind(path, l)
	}
	v.lockKey(path+".key", name, l)
	v.keyParts(path+".key", name)
	v.ownKeysDiffer(path+".key", name)
	v.literals(path+".key", name)
	isBy := v.config.IsBy(name)
	switch at := path + ".keep_fence"; {
	case isBy && l.KeepFence == 0 && v.given(at):
		v.reject(at, "keeps each session's fence for ever, also of sessions that clients make up: remove it")
	case l.KeepFence == 0, isBy && l.KeepFence == l.fenceOfTokens():
	default:
		between(v, at, l.KeepFence, leastFence, 87600*time.Hour)
	}
	if !isBy {
		v.notGiven(path, "is for a lock of settle.by, whose key has a hash in it: remove it", "secret_file", "secret_env")
	}
}

// ofKind checks the keys that are valid only for some kinds of locks.
func (v *validator) ofKind(path string, l Lock) {
	if l.Kind == LockFair && l.Wait.Every > maxFairPause {
		v.reject(path+".wait.every", "%s is too long for kind %s, which skips waiters that do not try again in time: at most %s",
			number(l.Wait.Every), LockFair, number(maxFairPause))
	}
	v.quorum(path, l)
	if l.Replicas != nil && v.config.Redis != nil && v.config.Redis.Mode == RedisEmbedded {
		v.reject(path+".replicas", "is not for mode %s, which has no replicas: remove it", RedisEmbedded)
	}
}

func (v *validator) lockKey(path, name string, l Lock) {
	key := l.Key
	switch n := strings.Count(key, "{id}"); {
	case n != 1:
		v.reject(path, "%s has {id} in it %d times: it has to be there once, as in order:lock:{id}", quote(key), n)
	case len(key) > maxLockKey:
		v.reject(path, "is %d bytes long: at most %d are allowed", len(key), maxLockKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r == ' ' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		v.reject(path, "%s has a space or a character in it that cannot be printed: leave it out", quote(key))
	case v.config.Redis != nil && v.config.Redis.Mode == RedisCluster && l.Kind != LockQuorum && !oneSlot(v.uses[name].KeyTemplate):
		v.reject(path, "%s has braces in it that are no hash tag, so the keys of one lock would lie in several slots: "+
			"write them around a part, as in order:lock:{{id}}, or leave them out", quote(key))
	}
}

// oneSlot reports whether all keys of a lock lie in one slot of a cluster. Their names contain
// the lock's key, in braces unless it has braces already. Redis hashes only the text between
// the first { and the next }, unless it is empty (Redis Cluster specification, "Hash tags").
func oneSlot(template KeyTemplate) bool {
	key := template.Key(func(string) string { return "1" })
	_, rest, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !open {
		return !strings.Contains(key, "}")
	}
	return closed && tag != ""
}

func (v *validator) quorum(path string, l Lock) {
	if l.Kind != LockQuorum || l.Quorum == nil {
		return
	}
	list, addresses := path+".quorum.addresses", l.Quorum.Addresses
	if n := len(addresses); n > 0 && (n < 3 || n%2 == 0) {
		v.reject(list, "has %d addresses: an odd number of at least 3 is needed, so that there is a majority", n)
	}
	for i, address := range addresses {
		item := list + "[" + strconv.Itoa(i) + "]"
		for _, other := range addresses[:i] {
			if overlap(other, address) {
				v.reject(item, "%s is the server of %s: each vote takes a server of its own", quote(address), quote(other))
				break
			}
		}
	}
}

func (v *validator) limit(path string, r *Rule) {
	l, at := r.Settle.Limit, path+".settle.limit"
	if l == nil {
		return
	}
	switch lock, defined := v.config.Locks[l.Lock]; {
	case l.Lock == "":
	case defined && lock.Kind != LockSemaphore && !v.unusable("locks."+l.Lock):
		v.reject(at+".lock", "%s is of kind %s: a limit takes one of kind %s", quote(l.Lock), lock.Kind, LockSemaphore)
	case l.Lock == r.Settle.Lock:
		v.reject(at+".lock", "%s is the lock of the order: a limit takes another", quote(l.Lock))
	}
}

// plainName matches a text in braces that looks like the name of a part.
var plainName = lazyregexp.New(`^[a-z_]+$`)

// literalNames returns the names in braces in a lock's key that stand for nothing, since no rule
// with the lock has such a part.
func (d *document) literalNames(c *Config, lock string) (names []string) {
	parts := d.uses[lock].Names
	for _, m := range placeholder.Compiled().FindAllStringSubmatch(c.Locks[lock].Key, -1) {
		if name := m[1]; plainName.MatchString(name) && name != partID && !slices.Contains(parts, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// literals rejects a {name} in a lock's key that is no part, if a rule would let one tenant
// have the orders of another: with the same stored answers, or although it has parts. Braces at
// the beginning may be the hash tag of a cluster, unless the file has a part of this name.
func (v *validator) literals(path, lock string) {
	for _, name := range v.literalNames(v.config, lock) {
		if strings.HasPrefix(v.config.Locks[lock].Key, "{"+name+"}") && !v.config.hasPart(name) {
			continue
		}
		for i := range v.config.Rules {
			r := &v.config.Rules[i]
			if stored, _ := r.ByOrder(); r.OrderLock() == lock && (stored != nil || len(r.Parts) > 0) {
				v.reject(path, "%s has {%s} in it, and no rule with this lock has such a part, so it would be the same text for all orders: "+
					"write the part into parts of rule %s, or leave the braces out", quote(v.config.Locks[lock].Key), name, quote(r.Name))
				break
			}
		}
	}
}

// hasPart reports whether a rule or a filter of the file has a part of this name.
func (c *Config) hasPart(name string) bool {
	for i := range c.Rules {
		if _, has := c.Rules[i].Parts[name]; has {
			return true
		}
	}
	for _, f := range c.Filters {
		if slices.Contains(f.Parts, name) {
			return true
		}
	}
	return false
}

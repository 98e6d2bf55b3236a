package config

import (
	"slices"
	"strings"
)

// lockKeysDiffer rejects two locks with the same key, since a holder of one would also hold the
// other. A read and a write lock may share a key. Other locks of different kinds or formats
// must not share a key even for different orders. Redis would confuse them, or the holder of
// one would never wake the waiters of the other.
func (v *validator) lockKeysDiffer(c *Config) {
	uses := v.lockUses(c)
	names := sortedKeys(c.Locks)
	for i, name := range names {
		l, path := c.Locks[name], join("locks", name)
		if l.Key == "" || v.unusable(path+".key") || v.hasUnknownKind(path, l) {
			continue
		}
		for _, other := range names[:i] {
			o, otherPath := c.Locks[other], join("locks", other)
			if v.unusable(otherPath+".key") || v.hasUnknownKind(otherPath, o) {
				continue
			}
			alike := l.Kind == o.Kind && l.Format == o.Format
			sides := l.Kind == LockRead && o.Kind == LockWrite || l.Kind == LockWrite && o.Kind == LockRead
			switch {
			case sides:
				continue
			case l.Key == o.Key && alike:
				v.reject(path+".key", "%s is also the key of %s: give each lock a key of its own", quote(l.Key), v.shown(otherPath))
			case alike && l.Key != o.Key && (uses[name].hasParts() || uses[other].hasParts()) && mayShareKey(uses[name], uses[other]):
				v.reject(path+".key", "%s can make the same key as %s of %s, so the orders of two could share a lock: give each lock keys of its own",
					quote(l.Key), quote(o.Key), v.shown(otherPath))
			case !alike && mayShareKey(uses[name], uses[other]):
				v.reject(path+".key", "%s can make the same key as %s of %s, which is of another kind or format: give each lock a key of its own",
					quote(l.Key), quote(o.Key), v.shown(otherPath))
			default:
				continue
			}
			break
		}
	}
}

// auxiliaryKeys are the prefixes and suffixes that package redislock adds to a lock's key to
// name the other keys of the lock.
var auxiliaryKeys = [][2]string{
	{"redisson_lock_token:", ""}, {"redisson_lock_queue:", ""}, {"redisson_lock_timeout:", ""},
	{"", ":rwlock_timeout:1"},
	{"", ":ordergate_holders"}, {"", ":ordergate_entry"}, {"", ":ordergate_grant"},
	{"", ":ordergate_once"}, {"", ":ordergate_waiting"}, {"", ":ordergate_permits"}, {"", ":ordergate_leases"},
}

// auxiliaryKeysDiffer rejects a lock whose key for one order can equal an auxiliary key for
// another order. This needs braces in the lock's key: redislock puts other keys into braces.
func (v *validator) auxiliaryKeysDiffer(c *Config) {
	uses := v.lockUses(c)
	for _, name := range sortedKeys(c.Locks) {
		l, path := c.Locks[name], join("locks", name)
		if !strings.ContainsAny(strings.Join(uses[name].keys[0].Texts, ""), "{}") || v.unusable(path+".key") || v.discarded[path+".key"] {
			continue
		}
		for _, around := range auxiliaryKeys {
			own := lockUse{keys: []KeyTemplate{uses[name].keys[0].around(around[0], around[1])}, chars: uses[name].chars}.withTokens()
			if mayShareKey(own, uses[name]) {
				v.reject(path+".key", "%s can make the key of an order that belongs to the lock of another one (such as ...%s): "+
					"write the braces around {id}, as in order:lock:{{id}}, or leave them out", quote(l.Key), around[0]+around[1])
				break
			}
		}
	}
}

// lockUse describes the keys that a lock can have.
type lockUse struct {
	keys   []KeyTemplate
	chars  map[string]charset // of the variables in the keys
	tokens [][]keyToken       // of each key
}

// hasParts reports whether the keys have parts of IDs.
func (u lockUse) hasParts() bool { return len(u.keys[0].Parts()) > 0 }

// lockUses returns the use of each lock by the rules, by the lock's name.
func (v *validator) lockUses(c *Config) map[string]lockUse {
	if v.uses != nil {
		return v.uses
	}
	uses := make(map[string]lockUse, len(c.Locks))
	v.uses = uses
	for name := range c.Locks {
		uses[name] = lockUse{keys: []KeyTemplate{c.LockKey(name)}, chars: map[string]charset{}}
	}
	note := func(name string, observed bool) (chars map[string]charset) {
		use := uses[name] // none if the lock is not defined
		if observed && len(use.keys) == 1 {
			use.keys = append(use.keys, use.keys[0].around("", ObservedSuffix))
			uses[name] = use
		}
		return use.chars
	}
	add := func(chars map[string]charset, name string, id ID) {
		if chars != nil {
			s := chars[name]
			s.union(charsOf(id))
			chars[name] = s
		}
	}
	for _, r := range c.Rules {
		if lock := r.OrderLock(); lock != "" {
			chars := note(lock, r.Mode.Observes())
			for _, id := range r.IDs {
				add(chars, partID, id)
			}
			for name, id := range r.Parts {
				add(chars, name, id)
			}
		}
		if s := r.Settle; s != nil && s.Limit != nil {
			add(note(s.Limit.Lock, r.Mode.Observes()), partID, s.Limit.ID)
		}
	}
	for name, use := range uses {
		uses[name] = use.withTokens()
	}
	return uses
}

// withTokens sets the tokens of the keys.
func (u lockUse) withTokens() lockUse {
	for _, key := range u.keys {
		u.tokens = append(u.tokens, key.tokens(u.chars))
	}
	return u
}

// around returns the template with a text before it and another behind it.
func (t KeyTemplate) around(before, behind string) KeyTemplate {
	texts := slices.Clone(t.Texts)
	texts[0] = before + texts[0]
	texts[len(texts)-1] += behind
	return KeyTemplate{Texts: texts, Names: t.Names}
}

// endsLike reports whether the texts at both ends of two templates agree as far as both have them.
// It is quick, and false for nearly all pairs of locks.
func (t KeyTemplate) endsLike(o KeyTemplate) bool {
	a, b := t.Texts[0], o.Texts[0]
	if n := min(len(a), len(b)); a[:n] != b[:n] {
		return false
	}
	a, b = t.Texts[len(t.Texts)-1], o.Texts[len(o.Texts)-1]
	n := min(len(a), len(b))
	return a[len(a)-n:] == b[len(b)-n:]
}

// mayShareKey reports whether two locks can have the same key, each with its own ID. It compares
// characters and ignores lengths, so it may return true for locks that cannot share a key.
func mayShareKey(a, b lockUse) bool {
	for i, s := range a.keys {
		for j, t := range b.keys {
			if s.endsLike(t) && meet(a.tokens[i], b.tokens[j]) {
				return true
			}
		}
	}
	return false
}

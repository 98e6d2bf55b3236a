package config

import "strings"

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
		if !strings.ContainsAny(strings.Replace(l.Key, "{id}", "", 1), "{}") || v.unusable(path+".key") || v.discarded[path+".key"] {
			continue
		}
		for _, around := range auxiliaryKeys {
			own := lockUse{templates: []string{around[0] + l.Key + around[1]}, letters: uses[name].letters}
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
	templates []string
	letters   alphabet // of the IDs in the keys
}

// lockUses returns the use of each lock by the rules, by the lock's name.
func (v *validator) lockUses(c *Config) map[string]lockUse {
	uses := make(map[string]lockUse, len(c.Locks))
	for name, l := range c.Locks {
		uses[name] = lockUse{templates: []string{l.Key}}
	}
	note := func(name string, observed bool, ids ...ID) {
		use, ok := uses[name]
		if !ok {
			return
		}
		if observed && len(use.templates) == 1 {
			use.templates = append(use.templates, use.templates[0]+ObservedSuffix)
		}
		for _, id := range ids {
			use.letters |= lettersOf(id)
		}
		uses[name] = use
	}
	for _, r := range c.Rules {
		if r.Create != nil && r.Create.Lock != "" {
			note(r.Create.Lock, r.Mode.Observes(), r.IDs...)
		}
		if s := r.Settle; s != nil {
			note(s.Lock, r.Mode.Observes(), r.IDs...)
			if s.Limit != nil {
				note(s.Limit.Lock, r.Mode.Observes(), s.Limit.ID)
			}
		}
	}
	return uses
}

// alphabet is a set of the characters that IDs may have.
type alphabet int8

const (
	digitsOnly alphabet = 1 << iota
	hexAndDash
	anyLetter
)

func lettersOf(id ID) alphabet {
	switch id.Format {
	case FormatUUID:
		return hexAndDash
	case FormatPattern:
		return anyLetter
	}
	return digitsOnly
}

// has reports whether an ID of the alphabet can contain the text.
func (a alphabet) has(text string) bool {
	for i := range len(text) {
		c := text[i]
		digit := '0' <= c && c <= '9'
		switch {
		case a&anyLetter != 0:
			// Package order refuses these characters for every pattern.
			if c <= ' ' || c >= 0x7f || strings.IndexByte(`%;,/\?#&+"{}`, c) >= 0 {
				return false
			}
		case a&hexAndDash != 0 && (digit || 'a' <= c && c <= 'f' || c == '-'):
		case a&digitsOnly != 0 && digit:
		default:
			return false
		}
	}
	return true
}

// mayShareKey reports whether two locks can have the same key, each with its own ID. It compares
// characters and ignores lengths, so it may return true for locks that cannot share a key.
func mayShareKey(a, b lockUse) bool {
	for _, s := range a.templates {
		for _, t := range b.templates {
			if templatesMayShareKey(s, a.letters, t, b.letters) {
				return true
			}
		}
	}
	return false
}

func templatesMayShareKey(s string, lettersS alphabet, t string, lettersT alphabet) bool {
	beforeS, afterS, _ := strings.Cut(s, "{id}")
	beforeT, afterT, _ := strings.Cut(t, "{id}")
	// If the text before or after the ID is longer in one template, the other template's ID
	// has to contain the difference.
	inT, startsS := strings.CutPrefix(beforeS, beforeT)
	inS, startsT := strings.CutPrefix(beforeT, beforeS)
	if !(startsS && lettersT.has(inT) || startsT && lettersS.has(inS)) {
		return false
	}
	inT, endsS := strings.CutSuffix(afterS, afterT)
	inS, endsT := strings.CutSuffix(afterT, afterS)
	return endsS && lettersT.has(inT) || endsT && lettersS.has(inS)
}

package config

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// lockUse is the key of a lock, and the IDs that its rules put into the key.
type lockUse struct {
	KeyTemplate
	ids keyIDs
}

// keyIDs are the IDs that the variables of a key stand for, by their names.
type keyIDs map[string][]ID

func (k keyIDs) add(r *Rule) {
	k[partID] = append(k[partID], r.IDs...)
	for name, id := range r.Parts {
		k[name] = append(k[name], id)
	}
}

// mayHave reports whether the value of a variable can have a character.
func (k keyIDs) mayHave(name string, c byte) bool {
	return slices.ContainsFunc(k[name], func(id ID) bool { return id.mayHave(c) })
}

// lockUses returns the use of each lock by the rules, by the lock's name.
func (c *Config) lockUses() map[string]lockUse {
	uses := make(map[string]lockUse, len(c.Locks))
	for name := range c.Locks {
		uses[name] = lockUse{ids: make(keyIDs)}
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if use, ok := uses[r.OrderLock()]; ok {
			use.ids.add(r)
		}
		if s := r.Settle; s != nil && s.Limit != nil {
			if use, ok := uses[s.Limit.Lock]; ok {
				use.ids[partID] = append(use.ids[partID], s.Limit.ID)
			}
		}
	}
	for name, use := range uses {
		use.KeyTemplate = NewKeyTemplate(c.Locks[name].Key, sortedKeys(use.ids))
		uses[name] = use
	}
	return uses
}

// lockKeysDiffer rejects two locks that could have the same key: Redis would confuse them, or the
// holder of one would exclude those of the other. Each lock's key begins with a text that no
// other one begins with. Only a read and a write lock share a key.
func (v *validator) lockKeysDiffer(c *Config) {
	var earlier []string
	for _, name := range sortedKeys(c.Locks) {
		l, path := c.Locks[name], join("locks", name)
		if !strings.Contains(l.Key, "{id}") || v.unusable(path+".key") || v.hasUnknownKind(path, l) {
			continue
		}
		for _, other := range earlier {
			o, a, b := c.Locks[other], v.uses[name].Texts[0], v.uses[other].Texts[0]
			isSame := l.Key == o.Key
			switch {
			case isSame && (l.Kind == LockRead && o.Kind == LockWrite || l.Kind == LockWrite && o.Kind == LockRead):
				continue
			case isSame:
				v.reject(path+".key", "%s is also the key of %s: give each lock a key of its own", quote(l.Key), v.shown(join("locks", other)))
			case strings.HasPrefix(a, b) || strings.HasPrefix(b, a):
				v.reject(path+".key", "%s begins like %s of %s, so their keys could be the same: begin each lock's key with a text that no other one begins with, such as %s and %s",
					quote(l.Key), quote(o.Key), v.shown(join("locks", other)), quote(other+":"), quote(name+":"))
			default:
				continue
			}
			break
		}
		earlier = append(earlier, name)
	}
}

// ownKeysDiffer rejects a lock whose key for one order can equal another key of the lock for
// another order. Package redislock puts a text with a colon before or behind the lock's key to
// name other keys, and braces around it unless it has braces. No ID has a brace.
func (v *validator) ownKeysDiffer(path, lock string) {
	use := v.uses[lock]
	braces := func(texts []string) bool { return strings.ContainsAny(strings.Join(texts, ""), "{}") }
	if !braces(use.Texts) {
		return
	}
	for i, name := range use.Names {
		inside := braces(use.Texts[:i+1]) && braces(use.Texts[i+1:])
		if !inside && use.ids.mayHave(name, ':') {
			v.reject(path, "%s has {%s} outside of its braces, and a colon in it could make the key of an order that belongs to the lock of another one (such as ...:rwlock_timeout:1): "+
				"write the braces around {id}, as in order:lock:{{id}}, leave them out, or give it a format without a colon", quote(v.config.Locks[lock].Key), name)
			return
		}
	}
}

// mayHave reports whether an ID can have a character. For a pattern it may return true for one
// that the ID cannot have: it looks at each part of the expression.
func (id *ID) mayHave(c byte) bool {
	switch {
	case c <= ' ' || c >= 0x7f || strings.IndexByte(`%;,/\?#&+"{}`, c) >= 0: // package order refuses it in any ID
		return false
	case '0' <= c && c <= '9' && id.Format != FormatPattern:
		return true
	case id.Format == FormatUUID:
		return c == '-' || 'a' <= c && c <= 'f' && id.Case != CaseUpper || 'A' <= c && c <= 'F' && id.Case != CaseLower
	case id.Format == FormatPattern:
		flags := syntax.Perl
		if id.FoldsCase() {
			flags |= syntax.FoldCase
		}
		re, err := syntax.Parse(id.Pattern, flags)
		return err != nil || mayHave(re, rune(c))
	}
	return false
}

func mayHave(re *syntax.Regexp, c rune) bool {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpLiteral:
		return slices.ContainsFunc(re.Rune, func(r rune) bool {
			return r == c || re.Flags&syntax.FoldCase != 0 && unicode.ToLower(r) == unicode.ToLower(c)
		})
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i] <= c && c <= re.Rune[i+1] {
				return true
			}
		}
	}
	return slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return mayHave(sub, c) })
}

// isUnambiguous reports whether different values of the variables always make different keys.
// It suffices that one can find the end of each variable but the last from the front: the
// character behind it is not one of the variable's. Or its beginning, from the back.
func (t KeyTemplate) isUnambiguous(ids keyIDs) (name, next string, ok bool) {
	fromFront, fromBack := true, true
	for i := 1; i < len(t.Names); i++ {
		text := t.Texts[i]
		if text == "" || ids.mayHave(t.Names[i-1], text[0]) {
			if fromFront {
				name, next = t.Names[i-1], text
			}
			fromFront = false
		}
		if text == "" || ids.mayHave(t.Names[i], text[len(text)-1]) {
			fromBack = false
		}
	}
	return name, next, fromFront || fromBack
}

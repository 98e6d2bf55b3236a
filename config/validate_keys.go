package config

import (
	"reflect"
	"slices"
	"strings"
)

// keys checks the values of a struct, and of those inside it, against their declarations. It
// skips values that a file does not have: they are defaults.
func (v *validator) keys(path string, s reflect.Value) {
	if r, ok := s.Interface().(Reply); ok {
		v.reply(path, r)
	}
	var misplaced []string
	for _, k := range v.keysOf(s.Type()) {
		f, given := s.FieldByIndex(k.field.Index), v.givenIn(path, k.key)
		if !given && f.IsZero() && k.need == "" {
			continue
		}
		at := join(path, k.key)
		switch {
		case v.unusable(at):
		case !v.applies(path, s, k):
			if given || !f.IsZero() {
				misplaced = append(misplaced, at)
				v.misplaced(path, s, k)
			}
		case k.not != "" && (given || !f.IsZero()) && v.has(path, s, k.not):
			misplaced = append(misplaced, at)
			v.reject(at, "excludes %s: give one of the two", k.not)
		case k.need != "" && !v.required(path, k.key, !f.IsZero() || given && k.least.IsValid(), k.need):
		case !given && (v.file != "" || f.IsZero()):
		case strings.HasSuffix(k.key, "_env") && !f.IsZero() && !variableName.MatchString(f.String()):
			v.reject(at, "is not the name of an environment variable: names are letters, digits and _")
		case len(k.choices) > 0:
			v.oneOf(path, s, k)
		case k.least.IsValid() && !inRange(f, k.least, k.most):
			v.reject(at, "%s is out of range: %s to %s are allowed", number(f.Interface()), number(k.least.Interface()), number(k.most.Interface()))
		}
	}
	v.eachMapping(path, s, false, func(at string, inner reflect.Value) {
		given := v.given(at)
		if !given && v.file != "" && strings.HasPrefix(at, "rules[") {
			return // it has nothing but defaults: no variable is for a rule
		}
		if (given || !inner.IsZero()) && !v.unusable(at) && !slices.ContainsFunc(misplaced, func(outer string) bool { return within(at, outer) }) {
			v.keys(at, inner)
		}
	})
}

// oneOf checks that a key has one of its words.
func (v *validator) oneOf(path string, s reflect.Value, k declaration) {
	at, word, kind := join(path, k.key), s.FieldByIndex(k.field.Index).String(), ""
	if slices.ContainsFunc(k.choices, func(c choice) bool { return c.kinds != nil }) {
		kind = s.FieldByIndex(v.sibling(s, "kind").field.Index).String()
	}
	var words []string
	var other choice // one that the word is, of another kind
	for _, c := range k.choices {
		if c.kinds == nil || slices.Contains(c.kinds, kind) || v.unusable(join(path, "kind")) {
			words = append(words, c.word)
		} else if c.word == word {
			other = c
		}
	}
	if other.word == "" {
		v.choice(at, word, words...)
	} else if v.hasWord(path, s, "kind") {
		v.reject(at, "%s is for %s only: choose %s", word, plural("kind", other.kinds), strings.Join(words, ", "))
	}
}

// hasWord reports whether a key has one of its words.
func (v *validator) hasWord(path string, s reflect.Value, key string) bool {
	k := v.sibling(s, key)
	word := s.FieldByIndex(k.field.Index).String()
	return !v.unusable(join(path, key)) && slices.ContainsFunc(k.choices, func(c choice) bool { return c.word == word })
}

// misplaced rejects a key that is for other mappings than its own. It reports nothing if the word
// of another key decides that, and has a violation itself.
func (v *validator) misplaced(path string, s reflect.Value, k declaration) {
	var texts []string
	n := 0
	for _, c := range k.only {
		if c.words == nil {
			texts, n = append(texts, c.key), n+1
			continue
		}
		other := v.sibling(s, c.key)
		if len(k.only) == 1 && !v.applies(path, s, other) {
			k.only = other.only
			v.misplaced(path, s, k)
			return
		}
		if v.applies(path, s, other) && !v.hasWord(path, s, c.key) {
			return
		}
		texts, n = append(texts, plural(c.key, c.words)), n+len(c.words)
	}
	set := "it"
	if n > 1 {
		set = "one of them"
	}
	v.reject(join(path, k.key), "is for %s only: set %s, or remove this", enumerate(texts), set)
}

// plural writes a key and its words.
func plural(key string, words []string) string {
	if len(words) > 1 {
		key += "s"
	}
	return key + " " + enumerate(words)
}

// enumerate writes words as a sentence has them: a, b and c.
func enumerate(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// inRange reports whether a number or a duration is within the bounds.
func inRange(n, least, most reflect.Value) bool {
	switch {
	case n.CanInt():
		return least.Int() <= n.Int() && n.Int() <= most.Int()
	case n.CanUint():
		return least.Uint() <= n.Uint() && n.Uint() <= most.Uint()
	}
	return least.Float() <= n.Float() && n.Float() <= most.Float() // false for NaN
}

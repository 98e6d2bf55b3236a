package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// keys checks the values of a struct, and of those inside it, against their declarations. It
// skips values that a file does not have: they are defaults.
func (v *validator) keys(path string, s reflect.Value) {
	if s.Type() == replyType {
		v.reply(path, s.Interface().(Reply))
	}
	var misplaced []string
	values := v.mappings[path]
	for _, k := range keysOf(s.Type()) {
		f := k.in(s)
		_, given := values[k.key]
		if !given && k.need == "" && (v.file != "" || f.IsZero()) {
			continue
		}
		at := func() string { return join(path, k.key) }
		switch {
		case len(v.discarded) > 0 && v.unusable(at()):
		case !v.applies(path, s, k) && (!given && f.IsZero() || v.misplaced(path, s, k)):
			misplaced = append(misplaced, at())
		case k.not != "" && (given || !f.IsZero()) && v.has(path, s, k.not):
			misplaced = append(misplaced, at())
			v.reject(at(), "excludes %s: give one of the two", k.not)
		case k.need != "" && !v.required(path, k.key, !isEmpty(f) || given && k.least.IsValid(), k.need):
		case k.with != nil && (given || !f.IsZero()) && !v.has(path, s, k.with[0]):
			v.reject(at(), "goes with %s", strings.Join(k.with, ", "))
		case !given && (v.file != "" || f.IsZero()):
		case strings.HasSuffix(k.key, "_env") && !f.IsZero() && !variableName.MatchString(f.String()):
			v.reject(at(), "is not the name of an environment variable: names are letters, digits and _")
		case len(k.choices) > 0:
			v.oneOf(path, s, k)
		case k.least.IsValid() && !inRange(f, k.least, k.most):
			v.reject(at(), "%s is out of range: %s to %s are allowed", number(f.Interface()), number(k.least.Interface()), number(k.most.Interface()))
		default:
			v.texts(at, f, k)
		}
	}
	// What the file does not give of a rule has nothing but defaults: no variable is for a rule.
	all := v.file == "" || !strings.HasPrefix(path, "rules[")
	v.eachMapping(path, s, func(k *declaration, _ reflect.Value) bool { return all || values[k.key] != nil }, false, func(at string, inner reflect.Value) {
		if given := v.given(at); (given || !inner.IsZero()) && !v.unusable(at) && !slices.ContainsFunc(misplaced, func(outer string) bool { return within(at, outer) }) {
			v.keys(at, inner)
		}
	})
}

func isEmpty(f reflect.Value) bool { return f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 }

// texts checks a text, or a list or a mapping: how long it is, and the texts in it.
func (v *validator) texts(at func() string, f reflect.Value, k *declaration) {
	isText, isList, isMap := f.Kind() == reflect.String, f.Kind() == reflect.Slice, f.Kind() == reflect.Map
	switch {
	case !isText && !isList && !isMap:
	case f.Len() == 0 && k.empty != "":
		v.rejectMissing(at(), nil, "is empty: %s", k.empty)
	case isText:
		v.text(at, f.String(), k)
	case f.Len() > k.items && k.items > 0:
		v.reject(at(), "has %d %s: at most %d are allowed", f.Len(), k.itemsAre, k.items)
	case isList && f.Type().Elem().Kind() == reflect.String:
		v.list(at(), f, k)
	case isMap && k.form == "name" && v.file == "": // the reader checks the names of a file
		for _, name := range sortedNames(f) {
			v.text(func() string { return join(at(), name.String()) }, name.String(), k)
		}
	}
}

// list checks the texts of a list.
func (v *validator) list(at string, f reflect.Value, k *declaration) {
	seen := make(map[string]bool, f.Len())
	for i := range f.Len() {
		text := f.Index(i).String()
		item := func() string {
			item := at + "[" + strconv.Itoa(i) + "]"
			if _, isList := v.lines[item]; f.Type() == answerStatusesType && !isList {
				return at // one by itself
			}
			return item
		}
		if k.twice != "" && seen[text] {
			v.reject(item(), "%s is given twice: %s", quote(text), k.twice)
			continue
		}
		seen[text] = true
		v.text(item, text, k)
	}
}

// text checks the form of a text, and that it is the name of an entry of a section.
func (v *validator) text(at func() string, text string, k *declaration) {
	if k.looks.problem != nil {
		if problem := k.looks.problem(text); problem != "" {
			v.reject(at(), "%s", problem)
		}
	}
	if k.of != "" {
		v.reference(at(), k.of, text)
	}
}

// oneOf checks that a key has one of its words.
func (v *validator) oneOf(path string, s reflect.Value, k *declaration) {
	at, word, kind := join(path, k.key), k.in(s).String(), ""
	if slices.ContainsFunc(k.choices, func(c choice) bool { return c.kinds != nil }) {
		kind = valueOf(s, "kind").String()
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
	if now := k.was[word]; now != "" {
		v.reject(at, "%s is called %s now: write %[2]s", quote(word), now)
	} else if other.word == "" {
		v.choice(at, word, words...)
	} else if v.hasWord(path, s, "kind") {
		v.reject(at, "%s is for %s only: choose %s", word, plural("kind", other.kinds), strings.Join(words, ", "))
	}
}

// hasWord reports whether a key has one of its words.
func (v *validator) hasWord(path string, s reflect.Value, key string) bool {
	k := keyOf(s.Type(), key)
	word := k.in(s).String()
	return !v.unusable(join(path, key)) && slices.ContainsFunc(k.choices, func(c choice) bool { return c.word == word })
}

// misplaced rejects a key that is for other mappings than its own. It returns false if the word of
// another key decides that, and has a violation itself.
func (v *validator) misplaced(path string, s reflect.Value, k *declaration) bool {
	var texts []string
	n := 0
	for _, c := range k.only {
		if c.words == nil {
			texts, n = append(texts, c.key), n+1
			continue
		}
		other := c.of
		if len(k.only) == 1 && !v.applies(path, s, other) {
			of := *k
			of.only = other.only
			return v.misplaced(path, s, &of)
		}
		if v.applies(path, s, other) && !v.hasWord(path, s, c.key) {
			return false
		}
		texts, n = append(texts, plural(c.key, c.words)), n+len(c.words)
	}
	set := "it"
	if n > 1 {
		set = "one of them"
	}
	v.reject(join(path, k.key), "is for %s only: set %s, or remove this", enumerate(texts), set)
	return true
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

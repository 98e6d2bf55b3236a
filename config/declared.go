package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// declaration is what the tags of a field say of its key:
//
//	mapstructure  the key
//	default       the value without the key, as a file has it
//	min, max      the bounds of a number or a duration, both allowed
//	oneof         the allowed words; binlog@mysql is for kind mysql
//	alias         other words, and the words that they stand for: mariadb=mysql
//	only          what the key is for: words of another key, kind=mysql,postgres, or other keys,
//	              one of which is given: json form
//	not           a key that excludes this one
//	form          of text: header (by itself, in a list or as keys) and lower become lower case;
//	              for the schema: address, lock, mode or name
//	reply         the default of a reply: status, retry_after and body
//	need          what to give: the key must not be missing or empty
//	change        what a reload cannot always change: restart, lock, answers or form, see [ChangeOf]
//
// What concerns several keys at once is code, in the validator. So are defaults that depend on
// other keys.
type declaration struct {
	key       string
	field     reflect.StructField
	byDefault reflect.Value // the zero Value: none
	least     reflect.Value // the zero Value: no bounds
	most      reflect.Value
	choices   []choice
	aliases   map[string]string
	only      []condition // one of which must hold
	not, need string
	form      string
	reply     *Reply // the default of one; nil: none, or it depends on other keys
	change    string
}

// condition holds if another key of the same mapping has one of the words, or without words, if
// it is given.
type condition struct {
	key   string
	words []string
}

// choice is an allowed word of a key, and the kinds that it is for; none: all.
type choice struct {
	word  string
	kinds []string
}

// keysOf returns the declarations of a struct, in the order of its fields. It panics if a tag is
// invalid: each load reads all tags.
func (d *document) keysOf(t reflect.Type) []declaration {
	if keys, known := d.keys[t]; known {
		return keys
	}
	var keys []declaration
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("mapstructure")
		if key == "" || key == "-" {
			continue
		}
		k := declaration{key: key, field: f, not: f.Tag.Get("not"), need: f.Tag.Get("need"), form: f.Tag.Get("form"), change: strings.TrimSuffix(f.Tag.Get("change"), asSet), aliases: make(map[string]string)}
		value := func(tag string) (v reflect.Value) {
			if text, has := f.Tag.Lookup(tag); has {
				read, problem := fromText(text, f.Type)
				if problem != "" {
					panic(t.Name() + "." + f.Name + ": " + tag + " " + problem)
				}
				v = reflect.ValueOf(read).Convert(f.Type)
			}
			return v
		}
		k.byDefault, k.least, k.most = value("default"), value("min"), value("max")
		for _, text := range strings.Fields(f.Tag.Get("oneof")) {
			word, kinds, some := strings.Cut(text, "@")
			c := choice{word: word}
			if some {
				c.kinds = strings.Split(kinds, ",")
			}
			k.choices = append(k.choices, c)
		}
		for _, alias := range strings.Fields(f.Tag.Get("alias")) {
			from, to, _ := strings.Cut(alias, "=")
			k.aliases[from] = to
		}
		for _, of := range strings.Fields(f.Tag.Get("only")) {
			of, words, hasWords := strings.Cut(of, "=")
			c := condition{key: of}
			if hasWords {
				c.words = strings.Split(words, ",")
			}
			k.only = append(k.only, c)
		}
		if text := f.Tag.Get("reply"); text != "" {
			parts := strings.SplitN(text, " ", 3)
			status, _ := strconv.Atoi(parts[0])
			after, err := time.ParseDuration(parts[1])
			if err != nil {
				panic(t.Name() + "." + f.Name + ": reply " + text)
			}
			k.reply = &Reply{Status: status, RetryAfter: after, Body: parts[2]}
		}
		keys = append(keys, k)
	}
	d.keys[t] = keys
	return keys
}

// eachMapping calls visit for the mappings inside a struct, with their paths. It stores changed
// entries of maps if store is set.
func (d *document) eachMapping(path string, v reflect.Value, store bool, visit func(string, reflect.Value)) {
	for _, k := range d.keysOf(v.Type()) {
		f, t := v.FieldByIndex(k.field.Index), k.field.Type
		switch t.Kind() {
		case reflect.Struct:
			visit(join(path, k.key), f)
		case reflect.Pointer:
			if t.Elem().Kind() == reflect.Struct && !f.IsNil() {
				visit(join(path, k.key), f.Elem())
			}
		case reflect.Slice:
			if t.Elem().Kind() != reflect.Struct {
				continue
			}
			at := join(path, k.key)
			for i := range f.Len() {
				item := at + "[" + strconv.Itoa(i) + "]"
				if t == idsType {
					item = d.idPath(path, i, f.Len())
				}
				visit(item, f.Index(i))
			}
		case reflect.Map:
			if t.Elem().Kind() != reflect.Struct {
				continue
			}
			at := join(path, k.key)
			for _, name := range sortedNames(f) {
				entry := reflect.New(t.Elem()).Elem()
				entry.Set(f.MapIndex(name))
				visit(join(at, name.String()), entry)
				if store {
					f.SetMapIndex(name, entry)
				}
			}
		}
	}
}

// sortedNames returns the keys of a map from texts, in order.
func sortedNames(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
}

// fill sets the declared defaults of a struct and of those inside it.
func (d *document) fill(path string, v reflect.Value) {
	for _, k := range d.keysOf(v.Type()) {
		f := v.FieldByIndex(k.field.Index)
		if len(k.aliases) > 0 && k.aliases[f.String()] != "" {
			f.SetString(k.aliases[f.String()])
		}
		if (k.form == "header" || k.form == "lower") && !f.IsZero() {
			lower(f, k.form)
		}
		if k.reply != nil && d.applies(path, v, k) {
			f.Addr().Interface().(*Reply).ensureDefaults(d, join(path, k.key), *k.reply)
		}
		if !k.byDefault.IsValid() || !f.IsZero() || d.givenIn(path, k.key) || !d.applies(path, v, k) {
			continue
		}
		if f.Kind() == reflect.Slice { // each configuration has a list of its own
			f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, k.byDefault.Len()), k.byDefault))
			continue
		}
		f.Set(k.byDefault)
	}
	d.eachMapping(path, v, true, d.fill)
}

// lower converts a text to lower case, or the names of headers, in which they are compared. One that
// is given in two cases stays as it is.
func lower(f reflect.Value, form string) {
	switch names := f.Interface().(type) {
	case string:
		if form == "lower" {
			f.SetString(strings.ToLower(names))
		} else {
			f.SetString(lowerHeader(names))
		}
	case []string:
		for i, name := range names {
			names[i] = lowerHeader(name)
		}
	case map[string]string:
		for name, value := range names {
			if _, taken := names[lowerHeader(name)]; !taken {
				delete(names, name)
				names[lowerHeader(name)] = value
			}
		}
	}
}

func lowerHeader(name string) string {
	if headerName.MatchString(name) { // ToLower would also fold letters outside ASCII
		return strings.ToLower(name)
	}
	return name
}

// applies reports whether a key is for the mapping that it stands in.
func (d *document) applies(path string, v reflect.Value, k declaration) bool {
	return len(k.only) == 0 || slices.ContainsFunc(k.only, func(c condition) bool {
		if c.words != nil {
			return slices.Contains(c.words, v.FieldByIndex(d.sibling(v, c.key).field.Index).String())
		}
		return d.has(path, v, c.key)
	})
}

// has reports whether a mapping has a key. A bool has to be true.
func (d *document) has(path string, v reflect.Value, key string) bool {
	f, at := v.FieldByIndex(d.sibling(v, key).field.Index), join(path, key)
	return !f.IsZero() || d.discarded[at] || d.given(at) && f.Kind() != reflect.Bool
}

// sibling returns the declaration of another key of a mapping.
func (d *document) sibling(v reflect.Value, key string) declaration {
	keys := d.keysOf(v.Type())
	return keys[slices.IndexFunc(keys, func(k declaration) bool { return k.key == key })]
}

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

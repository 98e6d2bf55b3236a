package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// declaration is what the tags of a field say of its key:
//
//	mapstructure  the key
//	default       the value without the key, as a file has it
//	min, max      the bounds of a number or a duration, both allowed
//	oneof         the allowed words; binlog@mysql is for kind mysql
//	alias         other words, and the words that they stand for: mariadb=mysql
//	was           earlier words, and those to write in place of them: fold=lower
//	only          what the key is for: words of another key, kind=mysql,postgres, or other keys,
//	              one of which is given: json form
//	not           a key that excludes this one
//	with          a key that this one needs, and what that is: key, its private key
//	form          what a text is, by itself, in a list or as keys, see [forms]; headers and lower
//	              (a media type) become lower case
//	of            the section that has an entry of this name
//	items         the most that a list or a mapping has, and what they are: 16 conditions
//	twice         what to do about a text that a list has twice
//	empty         what to do about an empty list, mapping or text
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
	was       map[string]string
	only      []condition // one of which must hold
	not, need string
	with      []string // the key, and what it is; nil: none
	form      string
	looks     form
	isLower   bool // it becomes lower case
	of        string
	items     int // 0: any number
	itemsAre  string
	twice     string
	empty     string
	reply     *Reply // the default of one; nil: none, or it depends on other keys
	change    string
}

// condition holds if another key of the same mapping has one of the words, or without words, if
// it is given.
type condition struct {
	key   string
	of    *declaration // that of the key
	words []string
}

// choice is an allowed word of a key, and the kinds that it is for; none: all.
type choice struct {
	word  string
	kinds []string
}

// in returns the field of the key in a struct.
func (k *declaration) in(v reflect.Value) reflect.Value { return v.Field(k.field.Index[0]) }

// declarations are those of a struct, in the order of its fields.
type declarations struct {
	inOrder  []*declaration
	byKey    map[string]*declaration
	mappings []*declaration        // of mappings, lists of them, and named entries
	secrets  []reflect.StructField // which have no key
	fills    bool                  // something in it has a default
}

// declared has the declarations of each struct that was asked for: they never change.
var declared sync.Map

// keysOf returns the declarations of a struct, in the order of its fields.
func keysOf(t reflect.Type) []*declaration { return declarationsOf(t).inOrder }

// keyOf returns the declaration of a key of a struct; nil: it has none of this name.
func keyOf(t reflect.Type, key string) *declaration { return declarationsOf(t).byKey[key] }

// declarationsOf panics if a tag is invalid: each load reads all tags.
func declarationsOf(t reflect.Type) *declarations {
	if known, ok := declared.Load(t); ok {
		return known.(*declarations)
	}
	keys := &declarations{byKey: make(map[string]*declaration)}
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("mapstructure")
		if f.Tag.Get("secret") != "" {
			keys.secrets = append(keys.secrets, f)
		}
		if key == "" || key == "-" {
			continue
		}
		k := &declaration{key: key, field: f, not: f.Tag.Get("not"), need: f.Tag.Get("need"), form: f.Tag.Get("form"), change: strings.TrimSuffix(f.Tag.Get("change"), asSet), aliases: make(map[string]string), was: make(map[string]string)}
		if _, known := forms[k.form]; !known && k.form != "" {
			panic(t.Name() + "." + f.Name + ": form " + k.form)
		}
		if with := f.Tag.Get("with"); with != "" {
			k.with = strings.SplitN(with, ", ", 2)
		}
		k.isLower = strings.HasSuffix(k.form, "header") || k.form == "lower"
		k.looks, k.of, k.twice, k.empty = forms[k.form], f.Tag.Get("of"), f.Tag.Get("twice"), f.Tag.Get("empty")
		if items, are, some := strings.Cut(f.Tag.Get("items"), " "); some {
			k.items, _ = strconv.Atoi(items)
			k.itemsAre = are
		}
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
		for tag, words := range map[string]map[string]string{"alias": k.aliases, "was": k.was} {
			for _, text := range strings.Fields(f.Tag.Get(tag)) {
				from, to, _ := strings.Cut(text, "=")
				words[from] = to
			}
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
		keys.inOrder = append(keys.inOrder, k)
		keys.byKey[key] = k
		if hasMappings(f.Type) {
			keys.mappings = append(keys.mappings, k)
		}
		keys.fills = keys.fills || k.byDefault.IsValid() || k.reply != nil || f.Type.Kind() == reflect.Struct && hasDefaults(f.Type)
	}
	for _, k := range keys.inOrder {
		for i := range k.only {
			k.only[i].of = keys.byKey[k.only[i].key]
		}
	}
	declared.Store(t, keys)
	return keys
}

// hasMappings reports whether a key has a mapping with fixed keys, a list of them, or named entries.
func hasMappings(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// hasDefaults reports whether a struct has a key with a declared default, by itself or inside.
func hasDefaults(t reflect.Type) bool { return declarationsOf(t).fills }

// eachMapping calls visit for the mappings inside a struct, with their paths: those that are wanted,
// or all if that is nil. It stores changed entries of maps if store is set.
func (d *document) eachMapping(path string, v reflect.Value, wanted func(*declaration, reflect.Value) bool, store bool, visit func(string, reflect.Value)) {
	for _, k := range declarationsOf(v.Type()).mappings {
		f := k.in(v)
		if f.Kind() != reflect.Struct && f.IsZero() || wanted != nil && !wanted(k, f) {
			continue
		}
		at := join(path, k.key)
		switch f.Kind() {
		case reflect.Struct:
			visit(at, f)
		case reflect.Pointer:
			visit(at, f.Elem())
		case reflect.Slice:
			for i := range f.Len() {
				item := at + "[" + strconv.Itoa(i) + "]"
				if f.Type() == idsType {
					item = d.idPath(path, i, f.Len())
				}
				visit(item, f.Index(i))
			}
		case reflect.Map:
			for _, name := range sortedNames(f) {
				entry := reflect.New(f.Type().Elem()).Elem()
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
	given := d.mappings[path]
	for _, k := range keysOf(v.Type()) {
		f := k.in(v)
		if len(k.aliases) > 0 && k.aliases[f.String()] != "" {
			f.SetString(k.aliases[f.String()])
		}
		if k.isLower && !f.IsZero() {
			lower(f, k.form)
		}
		if k.reply != nil && d.applies(path, v, k) {
			f.Addr().Interface().(*Reply).ensureDefaults(d, join(path, k.key), *k.reply)
		}
		if _, has := given[k.key]; !k.byDefault.IsValid() || has || !f.IsZero() || !d.applies(path, v, k) {
			continue
		}
		if f.Kind() == reflect.Slice { // each configuration has a list of its own
			f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, k.byDefault.Len()), k.byDefault))
			continue
		}
		f.Set(k.byDefault)
	}
	d.eachMapping(path, v, toFill, true, d.fill)
}

// toFill reports whether something in a mapping may get a default, or another form.
func toFill(k *declaration, f reflect.Value) bool {
	return f.Kind() != reflect.Struct || hasDefaults(f.Type()) || !f.IsZero()
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
func (d *document) applies(path string, v reflect.Value, k *declaration) bool {
	return len(k.only) == 0 || slices.ContainsFunc(k.only, func(c condition) bool {
		if c.words != nil {
			return slices.Contains(c.words, c.of.in(v).String())
		}
		return d.has(path, v, c.key)
	})
}

// has reports whether a mapping has a key. A bool has to be true.
func (d *document) has(path string, v reflect.Value, key string) bool {
	f := valueOf(v, key)
	return !f.IsZero() || len(d.discarded) > 0 && d.discarded[join(path, key)] || d.givenIn(path, key) && f.Kind() != reflect.Bool
}

// valueOf returns the field of a key in a struct, which has it.
func valueOf(v reflect.Value, key string) reflect.Value { return keyOf(v.Type(), key).in(v) }

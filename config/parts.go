package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/orderid"
)

// partID is the name of the order's own ID in the key of a lock.
const partID = "id"

// KeyTemplate is the key of a lock around its variables: a text before each of them, and one
// behind the last.
type KeyTemplate struct {
	Texts []string
	Names []string // "id", and the parts of the IDs
}

// LockKey returns the template of a lock. A {name} in its key is a variable if it is {id}, or if
// a rule whose orders have the lock has a part of this name. Any other text is literal.
func (c *Config) LockKey(name string) KeyTemplate {
	var parts []string
	for i := range c.Rules {
		if r := &c.Rules[i]; r.OrderLock() == name {
			parts = slices.AppendSeq(parts, maps.Keys(r.Parts))
		}
	}
	return NewKeyTemplate(c.Locks[name].Key, parts)
}

// NewKeyTemplate splits a key at {id} and at the parts of IDs.
func NewKeyTemplate(key string, parts []string) (t KeyTemplate) {
	from := 0
	for i := 0; i < len(key); i++ {
		name, _, closed := strings.Cut(key[i:], "}")
		if key[i] != '{' || !closed || name[1:] != partID && !slices.Contains(parts, name[1:]) {
			continue
		}
		t.Texts, t.Names = append(t.Texts, key[from:i]), append(t.Names, name[1:])
		from = i + len(name) + 1
		i = from - 1
	}
	t.Texts = append(t.Texts, key[from:])
	return t
}

// Parts returns the names of the parts in the key, in their order.
func (t KeyTemplate) Parts() []string {
	return slices.DeleteFunc(slices.Clone(t.Names), func(name string) bool { return name == partID })
}

// Key returns the key with the values of its variables.
func (t KeyTemplate) Key(value func(name string) string) string {
	var b strings.Builder
	for i, name := range t.Names {
		b.WriteString(t.Texts[i])
		b.WriteString(value(name))
	}
	b.WriteString(t.Texts[len(t.Names)])
	return b.String()
}

// filterOf returns the name of the rule's filter; "" if it has none.
func (r *Rule) filterOf() string {
	switch {
	case r.Lookup != nil:
		return r.Lookup.Filter
	case r.Create != nil:
		return r.Create.Filter
	}
	return ""
}

// PartNames returns the names of the parts in the order of the full ID, after [Config.EnsureDefaults].
func (r *Rule) PartNames() []string { return r.names }

// partOrder returns the names of a rule's parts in the order of its filter, or else of its lock's key.
// A part that neither has comes last, and is a violation.
func (c *Config) partOrder(r *Rule, uses map[string]lockUse) []string {
	if len(r.Parts) == 0 {
		return nil
	}
	order := slices.Clone(c.Filters[r.filterOf()].Parts)
	order = append(order, uses[r.OrderLock()].Parts()...)
	order = append(order, sortedKeys(r.Parts)...)
	seen := make(map[string]bool)
	return slices.DeleteFunc(order, func(name string) bool {
		_, is := r.Parts[name]
		skip := seen[name] || !is
		seen[name] = true
		return skip
	})
}

// maxParts bounds the parts of an ID.
const maxParts = 4

// maxComposedID is the length of the longest ID with its parts, in bytes.
const maxComposedID = orderid.MaxBytes

func (v *validator) parts(path string, r *Rule, entries []*entry) {
	at := path + ".parts"
	if n := len(r.Parts); n > 0 && n <= maxParts && n+len(r.IDs) > maxIDs && len(r.IDs) <= maxIDs {
		v.reject(at, "%d parts and %d entries of id: at most %d in all are allowed", n, len(r.IDs), maxIDs)
	}
	if _, has := r.Parts[partID]; has {
		v.reject(join(at, partID), "%s is the order's ID: give the part another name", partID)
	}
	ofParts, ofOrders := 0, 0 // lengths of the longest IDs
	for _, e := range entries {
		length := e.id.MaxLength
		if e.id.Format == FormatUUID {
			length = len("00000000-0000-0000-0000-000000000000")
		}
		switch e.role {
		case ofOrder:
			ofOrders = max(ofOrders, length)
		case ofPart:
			ofParts += length + 1 // the slash
		}
	}
	if n := ofParts + ofOrders; ofParts > 0 && n > maxComposedID && ofOrders <= maxComposedID {
		v.reject(at, "an ID with its parts may have %d bytes: at most %d are allowed, so lower a max_length", n, maxComposedID)
	}
	v.partsComplete(path, r)
}

// partsComplete checks that the rule's parts are those in the key of its lock and those of its
// filter. Otherwise the orders of two tenants would share a lock or an entry.
func (v *validator) partsComplete(path string, r *Rule) {
	var inKey, inFilter []string
	if lock := r.OrderLock(); lock != "" {
		at := join("locks", lock)
		if l, ok := v.config.Locks[lock]; ok && l.Key != "" && !v.unusable(at+".key") {
			inKey = v.uses[lock].Parts()
			v.sameParts(path, r, inKey, "in the key "+quote(l.Key)+" of "+v.shown(at), "two orders would share a lock: write {%s} in it")
		}
		if r.Settle != nil && r.Settle.Limit != nil {
			v.limitWithoutParts(path+".settle.limit.lock", r)
		}
	}
	if name := r.filterOf(); name != "" {
		at := join("filters", name)
		if f, ok := v.config.Filters[name]; ok && !v.unusable(at+".parts") && !v.partlyRead[at] {
			inFilter = f.Parts
			v.sameParts(path, r, inFilter, "among the parts of "+v.shown(at), "two orders would share an entry: add %s to them")
		}
	}
	if len(inKey) > 1 && len(inKey) == len(inFilter) && !slices.Equal(inKey, inFilter) {
		v.reject(path+".parts", "are %s in the key of locks.%s, and %s in filters.%s: give both one order, since it is that of a full ID",
			strings.Join(inKey, ", "), r.OrderLock(), strings.Join(inFilter, ", "), r.filterOf())
	}
}

func (v *validator) sameParts(path string, r *Rule, others []string, where, advice string) {
	for _, name := range sortedKeys(r.Parts) {
		if !slices.Contains(others, name) && nameProblem(name) == "" {
			v.reject(join(path+".parts", name), "is not "+strings.ReplaceAll(where, "%", "%%")+", so "+advice, name)
		}
	}
	for i, name := range others {
		if _, has := r.Parts[name]; !has && !slices.Contains(others[:i], name) && !v.unusable(path+".parts") {
			v.rejectMissing(path, []string{"parts"}, "parts.%s is missing: %s is %s, so say where a request has it", name, name, where)
		}
	}
}

// limitWithoutParts rejects a part in the key of a limit's lock, which has the limit's ID only.
func (v *validator) limitWithoutParts(path string, r *Rule) {
	l, ok := v.config.Locks[r.Settle.Limit.Lock]
	if !ok {
		return
	}
	for _, name := range sortedKeys(r.Parts) {
		if strings.Contains(l.Key, "{"+name+"}") {
			v.reject(path, "%s has {%s} in its key, and a limit has one ID and no parts: remove it from the key", quote(r.Settle.Limit.Lock), name)
		}
	}
}

// partProblem returns the fault of a part's name, or "".
func partProblem(name string) string {
	if name == partID {
		return name + " is the order's ID, which is always last: remove it"
	}
	return nameProblem(name)
}

// partColumns checks the columns of a table that have the parts of its IDs.
func (v *validator) partColumns(path, source string, s Source) {
	at := path + ".part_columns"
	var used []string // by filters
	for _, name := range sortedKeys(v.config.Filters) {
		f := v.config.Filters[name]
		if !slices.Contains(f.Sources, source) {
			continue
		}
		used = append(used, f.Parts...)
		for i, part := range f.Parts {
			if _, has := s.PartColumns[part]; !has && nameProblem(part) == "" && !slices.Contains(f.Parts[:i], part) && !v.unusable(at) && !v.partlyRead[at] {
				v.rejectMissing(path, []string{"part_columns"}, "part_columns.%s is missing: filter %s has this part, so name the column of the table that has it", part, quote(name))
			}
		}
	}
	columns := map[string]string{s.IDColumn: "id_column"}
	for _, part := range sortedKeys(s.PartColumns) {
		here, column := join(at, part), s.PartColumns[part]
		problem := nameProblem(part)
		switch other, taken := columns[column]; {
		case problem != "":
			v.reject(here, "%s", problem)
		case !isIdentifier(s.Kind, column):
			v.column(here, s.Kind, column)
		case taken:
			v.reject(here, "%s is also that of %s: name a column of its own", quote(column), other)
		case !slices.Contains(used, part):
			v.reject(here, "no filter of this source has the part %s: add it to the parts of the filter, or remove this", part)
		}
		columns[column] = part
	}
}

func (v *validator) keyParts(path, name string) {
	t := v.uses[name]
	if len(t.Parts()) == 0 || v.unusable(path) {
		return
	}
	for i, part := range t.Names {
		if part != partID && slices.Contains(t.Names[:i], part) {
			v.reject(path, "%s has {%s} in it more than once: once is enough", quote(v.config.Locks[name].Key), part)
			return
		}
	}
	before, text, ok := t.isUnambiguous(t.ids)
	switch {
	case ok:
	case text == "":
		v.reject(path, "%s has nothing between {%s} and the next part, so the keys of two orders may be the same: write a character between them that neither can have, such as /",
			quote(v.config.Locks[name].Key), before)
	default:
		v.reject(path, "%s has %s behind {%s}, which can have that character too, so the keys of two orders may be the same: write another one there, such as /, or give the part a format without it",
			quote(v.config.Locks[name].Key), quote(text[:1]), before)
	}
}

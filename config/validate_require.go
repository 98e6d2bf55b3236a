package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// maxConditionText bounds a template, and a value, in bytes. Each check sends them.
const maxConditionText = 256

func (v *validator) require(path string, r *Rule) {
	s := r.Settle
	at := path + ".require"
	for i := range s.Require {
		v.condition(at+"["+strconv.Itoa(i)+"]", &s.Require[i], r)
	}
}

func (v *validator) condition(path string, c *Condition, r *Rule) {
	parts := sortedKeys(r.Parts)
	kinds := slices.DeleteFunc(slices.Clone(conditionKinds), func(kind string) bool { return !v.givenIn(path, kind) })
	if len(kinds) == 0 { // one that is given without a usable value counts
		kinds = c.kinds()
	}
	switch {
	case len(kinds) == 0:
		v.rejectMissing(path, conditionKinds, "is no condition: give it one of %s", strings.Join(conditionKinds, ", "))
	case len(kinds) > 1:
		v.reject(path, "has %s: give each condition an entry of its own", strings.Join(kinds, " and "))
	}
	for _, t := range c.templates() {
		_, problem := Template(t.text, parts)
		if problem = cmp.Or(problem, printedProblem(t.text)); problem != "" {
			v.reject(join(path, t.key), "%s", problem)
		}
	}
	if value := c.Value; value != nil && value.Is+value.IsNot == "" && !v.given(path+".value.is") && !v.given(path+".value.is_not") {
		v.rejectMissing(path+".value", []string{"is", "is_not"}, "compares with nothing: give it is or is_not")
	}
	if day := c.Time; day != nil {
		from, fromOK := MinuteOf(day.From)
		if to, toOK := MinuteOf(day.To); fromOK && toOK && from == to {
			v.reject(path+".time.to", "is the same as from: leave both out for whole days")
		}
	}
	v.conditionParts(path, c, r)
	if len(kinds) == 1 {
		v.conditionIsNoLock(path, c, r)
	}
}

// conditionParts rejects a condition on an order's ID without its parts, and a key that the
// orders of two tenants could share.
func (v *validator) conditionParts(path string, c *Condition, r *Rule) {
	if len(r.Parts) == 0 || v.unusable(path) {
		return
	}
	names, all := sortedKeys(r.Parts), ""
	for _, t := range c.templates() {
		all += t.text
	}
	for _, name := range names {
		if strings.Contains(all, "{"+partID+"}") && !strings.Contains(all, "{"+name+"}") {
			v.reject(path, "has {%s} without {%s}, so two orders would share the condition: write {%s} in it", partID, name, name)
			return
		}
	}
	ids := make(keyIDs)
	ids.add(r)
	for _, t := range c.templates() {
		if before, _, ok := NewKeyTemplate(t.text, names).isUnambiguous(ids); !ok {
			v.reject(path, "%s makes the same text for two orders: write a character behind {%s} that it cannot have, such as /", quote(t.text), before)
		}
	}
}

// conditionIsNoLock rejects a condition on the lock of the order itself, which the settlement has when
// the conditions are checked: with one value for each placeholder, both keys are the same.
func (v *validator) conditionIsNoLock(path string, c *Condition, r *Rule) {
	name, key := r.Settle.Lock, c.Key()
	l, defined := v.config.Locks[name]
	at := join("locks", name)
	parts, problem := Template(key, sortedKeys(r.Parts))
	if key == "" || problem != "" || !defined || l.Kind == LockQuorum || v.unusable(at+".key") || v.hasUnknownKind(at, l) {
		return // a quorum has servers of its own
	}
	var same strings.Builder // with one value for each placeholder
	for _, part := range parts {
		same.WriteString(cmp.Or(part.Text, "1"))
	}
	own := v.uses[name].Key(func(string) string { return "1" })
	if same.String() == own || same.String() == own+ObservedSuffix {
		v.reject(join(path, c.templates()[0].key), "%s can make the same key as %s of %s, the lock that a settlement has during the check: give the condition a key of its own",
			quote(key), quote(l.Key), v.shown(at))
	}
}

// printedProblem returns the fault of a text that is sent to Redis, or "".
func printedProblem(text string) string {
	switch {
	case len(text) > maxConditionText:
		return fmt.Sprintf("is %d bytes long: at most %d are allowed", len(text), maxConditionText)
	case strings.ContainsFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		return fmt.Sprintf("%s has a character in it that cannot be printed: leave it out", quote(text))
	}
	return ""
}

package config

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // an image for sidecars may have no time zones
	"unicode"
)

const (
	// MaxConditions bounds the conditions of a rule: each settlement checks all of them.
	MaxConditions = 16
	// maxConditionText bounds a template, and a value, in bytes. Each check sends them.
	maxConditionText = 256
)

func (v *validator) require(path string, r *Rule) {
	s := r.Settle
	at := path + ".require"
	switch {
	case len(s.Require) == 0 && v.given(at):
		v.reject(at, "is empty: give it a condition, or remove it")
	case len(s.Require) > MaxConditions:
		v.reject(at, "has %d conditions: at most %d are allowed", len(s.Require), MaxConditions)
	}
	for i := range s.Require {
		v.condition(at+"["+strconv.Itoa(i)+"]", &s.Require[i], r)
	}
}

func (v *validator) condition(path string, c *Condition, r *Rule) {
	parts := sortedKeys(r.Parts)
	var kinds []string
	for _, kind := range conditionKinds { // one that is given without a usable value counts
		if v.given(join(path, kind)) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		kinds = c.kinds()
	}
	switch {
	case len(kinds) == 0:
		v.rejectMissing(path, conditionKinds, "is no condition: give it one of %s", strings.Join(conditionKinds, ", "))
	case len(kinds) > 1:
		v.reject(path, "has %s: give each condition an entry of its own", strings.Join(kinds, " and "))
	}
	for _, kind := range kinds {
		switch at := join(path, kind); kind {
		case "latch":
			v.template(at, c.Latch, parts)
		case "exists":
			v.template(at, c.Exists, parts)
		case "missing":
			v.template(at, c.Missing, parts)
		case "value":
			v.valueCondition(at, c.Value, parts)
		case "geo":
			v.geoCondition(at, c.Geo, parts)
		case "time":
			v.timeCondition(at, c.Time)
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
	names, all := sortedKeys(r.Parts), strings.Join(c.templates(), "")
	for _, name := range names {
		if strings.Contains(all, "{"+partID+"}") && !strings.Contains(all, "{"+name+"}") {
			v.reject(path, "has {%s} without {%s}, so two orders would share the condition: write {%s} in it", partID, name, name)
			return
		}
	}
	ids := make(keyIDs)
	ids.add(r)
	for _, text := range c.templates() {
		if before, _, ok := NewKeyTemplate(text, names).isUnambiguous(ids); !ok {
			v.reject(path, "%s makes the same text for two orders: write a character behind {%s} that it cannot have, such as /", quote(text), before)
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
		path = join(path, c.Kind())
		if c.Value != nil || c.Geo != nil {
			path += ".key"
		}
		v.reject(path, "%s can make the same key as %s of %s, the lock that a settlement has during the check: give the condition a key of its own",
			quote(key), quote(l.Key), v.shown(at))
	}
}

// template checks the template of a key, or of a member.
func (v *validator) template(path, text string, parts []string) {
	_, problem := Template(text, parts)
	switch {
	case text == "":
		v.reject(path, "is empty: give a key, such as \"loaders:{id}\"")
	case problem != "":
		v.reject(path, "%s", problem)
	default:
		v.conditionText(path, text)
	}
}

// conditionText checks a text that is sent to Redis.
func (v *validator) conditionText(path, text string) {
	if len(text) > maxConditionText {
		v.reject(path, "is %d bytes long: at most %d are allowed", len(text), maxConditionText)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		v.reject(path, "%s has a character in it that cannot be printed: leave it out", quote(text))
	}
}

func (v *validator) valueCondition(path string, c *ValueCondition, parts []string) {
	if c == nil {
		return
	}
	if c.Key != "" {
		v.template(path+".key", c.Key, parts)
	}
	is, isNot := c.Is != "" || v.given(path+".is"), c.IsNot != "" || v.given(path+".is_not")
	switch {
	case is && isNot:
		v.reject(path, "has is and is_not: give exactly one of them")
	case c.Is+c.IsNot == "" && (is || isNot):
		v.reject(path, "compares with an empty text: give it another one")
	case !is && !isNot:
		v.rejectMissing(path, []string{"is", "is_not"}, "compares with nothing: give it is or is_not")
	}
	v.conditionText(path+".is", c.Is)
	v.conditionText(path+".is_not", c.IsNot)
}

func (v *validator) geoCondition(path string, c *GeoCondition, parts []string) {
	if c == nil {
		return
	}
	if c.Key != "" {
		v.template(path+".key", c.Key, parts)
	}
	if c.Member != "" {
		v.template(path+".member", c.Member, parts)
	}
	if c.To != "" {
		v.template(path+".to", c.To, parts)
	}
	if _, ok := metersOf(c.Within); !ok && c.Within != "" {
		v.reject(path+".within", "%s is not a distance of at most 30000km such as 500m, 1.5km, 300ft or 2mi", quote(c.Within))
	}
}

func (v *validator) timeCondition(path string, c *TimeCondition) {
	if c == nil {
		return
	}
	from, fromOK := MinuteOf(c.From)
	to, toOK := MinuteOf(c.To)
	if !fromOK || from == 24*60 {
		v.reject(path+".from", "%s is not a time from 00:00 to 23:59", quote(c.From))
	}
	if !toOK {
		v.reject(path+".to", "%s is not a time from 00:00 to 24:00", quote(c.To))
	}
	if fromOK && toOK && from == to {
		v.reject(path+".to", "is the same as from: leave both out for whole days")
	}
	if len(c.Days) == 0 {
		v.reject(path+".days", "is empty: give a day, such as mon, or leave it out for all")
	}
	for i, day := range c.Days {
		if _, ok := DaysOf(day); !ok {
			v.reject(path+".days["+strconv.Itoa(i)+"]", "%s is not a day or a range of them: mon, tue, wed, thu, fri, sat, sun, or mon..fri", quote(day))
		}
	}
	if _, err := time.LoadLocation(c.Zone); err != nil || c.Zone == "" || c.Zone == "Local" {
		v.reject(path+".zone", "%s is not a time zone, such as UTC or Europe/Berlin", quote(c.Zone))
	}
}

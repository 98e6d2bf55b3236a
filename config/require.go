package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// Condition must hold before a settlement is forwarded. Exactly one of Latch, Exists, Missing,
// Value, Geo and Time is set.
//
// Keys are templates. {id} stands for the order's ID, {tenant} for the part of this name of a
// rule with parts, and {header:NAME} for a header that the request must have once, of 1 to 128
// letters, digits and . _ : -. For several orders, the condition must hold for each.
type Condition struct {
	Latch   string          `mapstructure:"latch" empty:"give a key, such as \"loaders:{id}\""`   // a countdown latch of Redisson that stands at 0, or does not exist
	Exists  string          `mapstructure:"exists" empty:"give a key, such as \"loaders:{id}\""`  // a key that exists
	Missing string          `mapstructure:"missing" empty:"give a key, such as \"loaders:{id}\""` // a key that does not exist
	Value   *ValueCondition `mapstructure:"value"`                                                // compares the string of a key
	Geo     *GeoCondition   `mapstructure:"geo"`                                                  // compares the distance of two members of a GEO set
	Time    *TimeCondition  `mapstructure:"time"`                                                 // a part of each day

	Otherwise Reply `mapstructure:"otherwise" reply:"425 1s {\"error\":\"order is not ready to be settled, try again later\"}"` // the answer if it does not hold; default 425, Retry-After 1s
}

// ValueCondition compares the string of a key. Exactly one of Is and IsNot is set.
type ValueCondition struct {
	Key   string `mapstructure:"key" need:"a key, such as \"day:{id}\""`                // a key in Redis
	Is    string `mapstructure:"is" form:"printed" empty:"give it a text"`              // the key has this value
	IsNot string `mapstructure:"is_not" form:"printed" empty:"give it a text" not:"is"` // it has another one, or does not exist
	// Codec is that of a Java service that wrote the value.
	Codec string `mapstructure:"codec" default:"string" oneof:"string default"`
}

// GeoCondition compares the distance of two members of a GEO set. Member and To are templates
// as keys are. A member that does not exist is not within any distance.
type GeoCondition struct {
	Key    string `mapstructure:"key" need:"the key of a GEO set"`                             // of a GEO set
	Member string `mapstructure:"member" need:"a member of the set, such as \"{id}\""`         // a member of the set
	To     string `mapstructure:"to" need:"a member of the set, such as \"{header:x-store}\""` // another member
	Within string `mapstructure:"within" form:"distance" need:"a distance, such as 500m"`      // 0 to 30000km, in m, km, ft or mi: "500m"
	// Codec is that of a Java service that wrote the members.
	Codec string `mapstructure:"codec" default:"string" oneof:"string default"`
}

// TimeCondition is a part of each day, by ordergate's clock. If To is before From, it ends on
// the next day.
type TimeCondition struct {
	From string `mapstructure:"from" form:"from" default:"00:00"` // "HH:MM", the first minute
	To   string `mapstructure:"to" form:"to" default:"24:00"`     // "HH:MM", the first minute after it
	// Days are those on which it begins: mon to sun, or ranges such as mon..fri.
	Days []string `mapstructure:"days" form:"day" empty:"give a day, such as mon, or leave it out for all" default:"sun,mon,tue,wed,thu,fri,sat"`
	Zone string   `mapstructure:"zone" form:"zone" default:"UTC"` // of the IANA database, such as Europe/Berlin
}

// Kind returns the key of the condition that is set, or "".
func (c *Condition) Kind() string {
	if kinds := c.kinds(); len(kinds) > 0 {
		return kinds[0]
	}
	return ""
}

// conditionKinds are the keys, one of which a condition has.
var conditionKinds = []string{"latch", "exists", "missing", "value", "geo", "time"}

func (c *Condition) kinds() (set []string) {
	for i, is := range []bool{c.Latch != "", c.Exists != "", c.Missing != "", c.Value != nil, c.Geo != nil, c.Time != nil} {
		if is {
			set = append(set, conditionKinds[i])
		}
	}
	return set
}

// Key returns the template of the condition's key; "": it has none.
func (c *Condition) Key() string {
	if all := c.templates(); len(all) > 0 {
		return all[0].text
	}
	return ""
}

// template is the text of a condition that has placeholders, and its key.
type template struct{ key, text string }

func (c *Condition) templates() []template {
	all := []template{{"latch", c.Latch}, {"exists", c.Exists}, {"missing", c.Missing}}
	if c.Value != nil {
		all = append(all, template{"value.key", c.Value.Key})
	}
	if g := c.Geo; g != nil {
		all = append(all, template{"geo.key", g.Key}, template{"geo.member", g.Member}, template{"geo.to", g.To})
	}
	return slices.DeleteFunc(all, func(t template) bool { return t.text == "" })
}

// ConditionNames returns the names of conditions in metrics, logs and explain: the kind, and a
// number from the second of its kind on, such as latch and latch-2.
func ConditionNames(conditions []Condition) []string {
	names, seen := make([]string, len(conditions)), make(map[string]int)
	for i := range conditions {
		kind := conditions[i].Kind()
		names[i] = kind
		if seen[kind]++; seen[kind] > 1 {
			names[i] += "-" + strconv.Itoa(seen[kind])
		}
	}
	return names
}

// TemplatePart is a part of a template. One of the fields is set.
type TemplatePart struct {
	Text   string
	ID     bool   // the order's ID, without its parts
	Part   string // this part of the ID
	Header string // the value of this header; in lower case
}

// placeholder matches what may be one in a template.
var placeholder = lazyregexp.New(`\{([^{}]*)\}`)

// headerPlaceholder begins the name of a placeholder for a header.
const headerPlaceholder = "header:"

// Template splits the template of a condition's key, in a rule whose IDs have these parts. The
// problem is "" if there is none. Other braces than those of placeholders are allowed as the
// hash tag of a cluster, once, around a placeholder.
func Template(text string, parts []string) (list []TemplatePart, problem string) {
	names := slices.Clone(parts)
	for _, m := range placeholder.Compiled().FindAllStringSubmatch(text, -1) {
		header, isHeader := strings.CutPrefix(m[1], headerPlaceholder)
		switch {
		case !isHeader:
			continue
		case !headerName.MatchString(header):
			return nil, fmt.Sprintf("has {%s}, which names no header: write it as {header:x-store}", m[1])
		case strings.HasPrefix(strings.ToLower(header), "x-ordergate-"):
			return nil, fmt.Sprintf("has {%s}, a header that ordergate sets: use one of the client's", m[1])
		}
		names = append(names, m[1])
	}
	t := NewKeyTemplate(text, names)
	for i, text := range t.Texts {
		if text != "" {
			list = append(list, TemplatePart{Text: text})
		}
		if i == len(t.Names) {
			break
		}
		p := TemplatePart{ID: t.Names[i] == partID}
		if header, isHeader := strings.CutPrefix(t.Names[i], headerPlaceholder); isHeader {
			p.Header = strings.ToLower(header)
		} else if !p.ID {
			p.Part = t.Names[i]
		}
		list = append(list, p)
	}
	rest := t.Key(func(string) string { return "*" }) // stands for the value, which has no braces
	return list, tagProblem(text, rest, parts)
}

// tagProblem returns the fault of the braces that are left of a template, whose placeholders
// are replaced by *; "" without one.
func tagProblem(text, rest string, parts []string) string {
	if !strings.ContainsAny(rest, "{}") {
		return ""
	}
	known := "{" + strings.Join(append([]string{partID}, parts...), "}, {") + "} and {header:NAME}"
	before, after, _ := strings.Cut(rest, "{")
	tag, after, closed := strings.Cut(after, "}")
	switch {
	case strings.Contains(before, "}") || !closed || strings.ContainsAny(tag+after, "{}"):
		return fmt.Sprintf("has braces that do not match in %s: besides %s, one pair is allowed around them", quote(text), known)
	case !strings.Contains(tag, "*"):
		return fmt.Sprintf("has {%s}: known are %s", tag, known)
	}
	return ""
}

// distance matches a distance in one of the units of Redis.
var distanceText = lazyregexp.New(`^([0-9]+(?:\.[0-9]+)?) ?(m|km|ft|mi)$`)

// meters are the units as Redis has them (geo.c, extractUnitOrReply).
var meters = map[string]float64{"m": 1, "km": 1000, "ft": 0.3048, "mi": 1609.34}

// maxDistance is more than half of the earth's circumference, in meters.
const maxDistance = 30_000_000

// Meters returns the distance of Within, 0 if it is invalid.
func (g *GeoCondition) Meters() float64 {
	d, _ := metersOf(g.Within)
	return d
}

func metersOf(text string) (d float64, ok bool) {
	m := distanceText.Compiled().FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	return n * meters[m[2]], err == nil && n*meters[m[2]] <= maxDistance
}

// MinuteOf returns the minutes from midnight to a time of day, 24:00 included; false if it is invalid.
func MinuteOf(text string) (minute int, ok bool) {
	if text == "24:00" {
		return 24 * 60, true
	}
	t, err := time.Parse("15:04", text)
	return 60*t.Hour() + t.Minute(), err == nil && len(text) == len("15:04")
}

// weekdays are the days as a file has them, in the order of [time.Weekday].
var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// DaysOf returns the days of a list entry: one day, or a range; false if it is invalid. A range
// may go over the end of the week.
func DaysOf(entry string) (days []time.Weekday, ok bool) {
	first, last, isRange := strings.Cut(entry, "..")
	if !isRange {
		last = first
	}
	from, to := slices.Index(weekdays, first), slices.Index(weekdays, last)
	if from < 0 || to < 0 {
		return nil, false
	}
	for d := from; ; d = (d + 1) % 7 {
		days = append(days, time.Weekday(d))
		if d == to {
			return days, true
		}
	}
}

func (s *Settle) asksRedis() bool {
	return slices.ContainsFunc(s.Require, func(c Condition) bool { return c.Key() != "" })
}

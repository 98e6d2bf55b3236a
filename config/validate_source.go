package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

func (v *validator) source(path, name string, s Source) {
	switch {
	case s.Live():
		v.table(path, name, s)
	case s.Feed():
		v.feed(path, name, s)
	}
}

// topicName matches the names that Kafka accepts for a topic.
var topicName = lazyregexp.New(`^[a-zA-Z0-9._-]{1,249}$`)

func isTopic(name string) bool { return topicName.MatchString(name) && name != "." && name != ".." }

func (v *validator) feed(path, name string, s Source) {
	switch {
	case s.Format == FeedJSON && s.Table != "":
		v.reject(path+".table", "is for formats %s and %s, whose messages name their table: remove this", FeedCanal, FeedDebezium)
	case s.Table != "" && strings.Count(s.Table, ".") > 1:
		v.reject(path+".table", "%s is not the name of a table, or schema.table", quote(s.Table))
	}
	v.partColumns(path, name, s)
	v.login(path, "username", "password", s.Username, string(s.Password)+s.PasswordFile+s.PasswordEnv)
}

func (v *validator) table(path, name string, s Source) {
	if s.DSN == "" && s.DSNFile == "" && s.DSNEnv == "" {
		v.rejectMissing(path, []string{"dsn_file", "dsn_env"}, "does not name the database: give one of dsn_file, dsn_env")
	}
	if v.required(path, "table", s.Table != "", "the name of the table, or schema.table") {
		for part := range strings.SplitSeq(s.Table, ".") {
			if !isIdentifier(s.Kind, part) || strings.Count(s.Table, ".") > 1 {
				v.reject(path+".table", "%s is not the name of a table, or schema.table: %s", quote(s.Table), identifierForm(s.Kind))
				break
			}
		}
	}
	if s.IDColumn != "" {
		v.column(path+".id_column", s.Kind, s.IDColumn)
	}
	v.partColumns(path, name, s)
	if s.CursorColumn != s.IDColumn || v.given(path+".cursor_column") {
		v.column(path+".cursor_column", s.Kind, s.CursorColumn)
	}
	if s.Follow == FollowLogical && !slotName.MatchString(s.Slot) { // of a source with a long name by default
		v.reject(path+".slot", "%s is not the name of a slot: give 1 to 63 of a-z, 0-9 and _", quote(s.Slot))
	}
	v.grace(path+".grace", name, s.Grace)
}

func (v *validator) column(path, kind, name string) {
	if !isIdentifier(kind, name) {
		v.reject(path, "%s is not the name of a column: %s", quote(name), identifierForm(kind))
	}
}

// isIdentifier reports whether a table or a column, for example, can have the name. MySQL limits
// characters. PostgreSQL limits bytes and truncates longer names.
func isIdentifier(kind, name string) bool {
	length := utf8.RuneCountInString(name)
	most := 64
	if kind == SourcePostgres {
		length, most = len(name), 63
	}
	printed := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	return length >= 1 && length <= most && strings.IndexFunc(name, func(r rune) bool { return !printed(r) }) < 0
}

func identifierForm(kind string) string {
	if kind == SourcePostgres {
		return "names are 1 to 63 bytes that can be printed"
	}
	return "names are 1 to 64 characters that can be printed"
}

// slotName matches the names that PostgreSQL accepts for a replication slot.
var slotName = lazyregexp.New(`^[a-z0-9_]{1,63}$`)

// grace checks the duration, and that the IDs of the source contain their creation time.
func (v *validator) grace(path, source string, grace time.Duration) {
	if grace == 0 {
		return
	}
	const instead = "remove this"
	for _, name := range sortedKeys(v.config.Filters) {
		if !slices.Contains(v.config.Filters[name].Sources, source) {
			continue
		}
		if !v.haveDates(path, name, instead) {
			return
		}
		for rule, id := range v.idsOf(name) {
			// A date without a time is too coarse for the age of an order.
			parts := dateParts(id.Time.Layout)
			toTheSecond := parts["15"] && parts["04"] && parts["05"]
			if id.Format == FormatTimestamped && isDateLayout(id.Time.Layout) && !toTheSecond {
				v.reject(path, "the IDs of rule %s have a date without a time: give them a layout to the second, such as 20060102150405, or %s", quote(rule), instead)
				return
			}
		}
	}
}

// followerName returns the key that identifies a source's follower to its server, and the key's
// value; "" if there is none.
func followerName(s Source) (key, name string) {
	switch {
	case s.Follow == FollowBinlog && s.ServerID != 0:
		return "server_id", number(uint64(s.ServerID))
	case s.Follow == FollowLogical && s.Slot != "":
		return "slot", s.Slot
	}
	return "", ""
}

// followersDiffer checks that no two sources follow the same server under the same name, since
// the server serves only one of them. Each filter follows its sources separately. So
// followersDiffer also rejects two filters that follow the same source with a name.
func (v *validator) followersDiffer(c *Config) {
	type follower struct{ dsn, key, name string }
	owners := make(map[follower]string)
	for _, name := range sortedKeys(c.Sources) {
		s, path := c.Sources[name], join("sources", name)
		key, as := followerName(s)
		if key == "" || s.DSNFile == "" && s.DSNEnv == "" && s.DSN == "" {
			continue // another check reports the missing server
		}
		f := follower{s.DSNFile + "\x00" + s.DSNEnv + "\x00" + string(s.DSN), key, as}
		if other, taken := owners[f]; taken {
			v.reject(join(path, key), "source %s has the same, at the same server: choose another", quote(other))
			continue
		}
		owners[f] = name
	}
	users := make(map[string]string) // from source to filter
	for _, name := range sortedKeys(c.Filters) {
		for i, s := range c.Filters[name].Sources {
			key, _ := followerName(c.Sources[s])
			other, taken := users[s]
			switch {
			case key == "":
			case taken && other != name:
				v.reject(join("filters", name)+".sources["+strconv.Itoa(i)+"]",
					"%s is followed for filter %s, and its %s is for one: define another source of the same table", quote(s), quote(other), key)
			default:
				users[s] = name
			}
		}
	}
}

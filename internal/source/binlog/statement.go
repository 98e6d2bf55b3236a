package binlog

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// meaning is what a statement in the log is to the follower of a table.
type meaning int

const (
	irrelevant meaning = iota // for this table
	beginsTx                  // a transaction
	endsTx                    // a transaction
	insideTx                  // a transaction: a savepoint, say
	hidesRows                 // rows that the table got, or changed, and the log does not show; or it may
)

// The parts of definitions that are looked for.
const (
	// The class holds letters of both cases already. Folding it would cost each start
	// 10 ms, and 150 ms with the race detector.
	ident = "((?-i:`(?:[^`]|``)+`|" + `"(?:[^"]|"")+"|[\w$\x{80}-\x{10ffff}]+))`
	name  = ident + `(?:\s*\.\s*` + ident + `)?`
)

var (
	words  = regexp.MustCompile(`^[A-Za-z]+`)
	tables = regexp.MustCompile(`(?is)\bTABLES?\b`)
	// A definition of one table, as nearly all are written.
	define = regexp.MustCompile(`(?is)^(?:ALTER|CREATE)(?:\s+(?:ONLINE|IGNORE|OR|REPLACE|TEMPORARY))*\s+TABLE\s+` +
		`(?:IF\s+(?:NOT\s+)?EXISTS\s+)?` + name + `\s*`)
	comment = regexp.MustCompile(`/\*|--|#`)
	// A table that comes in another's place brings its rows along.
	movement = regexp.MustCompile(`(?is)\b(?:EXCHANGE|CONVERT|RENAME)\b`)
	// What is done to partitions is a statement by itself, and changes no row.
	partitions = regexp.MustCompile(`(?i)^(?:ADD|DROP|TRUNCATE|REORGANIZE|COALESCE|REBUILD|OPTIMIZE|ANALYZE|CHECK|REPAIR)\s+PARTITION\b`)
	// A table that is created of rows. They may come of a function that writes.
	filled = regexp.MustCompile(`(?is)^CREATE\b.*(?:\bSELECT\b|\bVALUES\b|\bTABLE\b.*\bTABLE\b)`)
	// What has statements in it that are not run when it is created, and tables that the
	// log has no rows of.
	harmless = regexp.MustCompile(`(?i)^(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:DEFINER|ALGORITHM|VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT)|DROP\s+TEMPORARY)\b`)
)

// meaningOf reads a statement that was logged while schema was the default.
//
// A server that logs rows has no statement for them. So one that may write rows comes
// from a session with another binlog_format, and what it wrote cannot be told by its
// text: a trigger, a function or a view lead to any table. Here only statements count as
// harmless whose first words leave no doubt.
func (t tableName) meaningOf(statement, schema string) meaning {
	statement = strip(statement)
	word := words.FindString(statement)
	rest := strings.ToUpper(strings.TrimSpace(statement[len(word):min(len(statement), len(word)+20)]))
	switch word = strings.ToUpper(word); word {
	case "BEGIN":
		if rest == "" {
			return beginsTx
		}
	case "COMMIT":
		return endsTx
	case "ROLLBACK":
		if strings.HasPrefix(rest, "TO") {
			return insideTx
		}
		return endsTx
	case "SAVEPOINT", "RELEASE":
		return insideTx
	case "XA":
		switch {
		case strings.HasPrefix(rest, "START"), strings.HasPrefix(rest, "BEGIN"):
			return beginsTx
		case strings.HasPrefix(rest, "END"):
			return insideTx
		}
		return endsTx // PREPARE, COMMIT, ROLLBACK
	case "GRANT", "REVOKE", "FLUSH", "TRUNCATE", "OPTIMIZE", "REPAIR", "INSTALL", "UNINSTALL":
		return irrelevant
	case "ANALYZE": // ANALYZE INSERT inserts
		if strings.HasPrefix(rest, "TABLE") {
			return irrelevant
		}
	case "SET": // SET STATEMENT ... FOR INSERT inserts
		if strings.HasPrefix(rest, "PASSWORD") || strings.HasPrefix(rest, "DEFAULT ROLE") {
			return irrelevant
		}
	case "ALTER", "CREATE", "RENAME", "DROP":
		return t.definition(statement, schema)
	}
	return hidesRows
}

// strip removes the comments before a statement. If all of it is in a comment that only
// some versions run, it is what is in there; if a part of it is, "".
func strip(statement string) string {
	for {
		statement = strings.TrimLeft(statement, " \t\n\v\f\r")
		end := "\n"
		switch {
		case strings.HasPrefix(statement, "/*!"), strings.HasPrefix(statement, "/*M!"):
			inside, after, _ := strings.Cut(statement, "*/")
			if strings.TrimRight(after, " \t\n;") != "" {
				return ""
			}
			_, inside, _ = strings.Cut(inside, "!")
			return strings.TrimLeft(inside, "0123456789 \t\n")
		case strings.HasPrefix(statement, "/*"):
			statement, end = statement[2:], "*/"
		case strings.HasPrefix(statement, "#"), strings.HasPrefix(statement, "-- "):
		default:
			return statement
		}
		_, statement, _ = strings.Cut(statement, end)
	}
}

// definition is meaningOf for statements that define things. When a table is defined
// anew, its rows may have other IDs.
func (t tableName) definition(statement, schema string) meaning {
	switch {
	case !tables.MatchString(statement), harmless.MatchString(statement):
		return irrelevant
	case filled.MatchString(statement), !ascii(t.schema+t.name) && !ascii(statement): // it may be in another character set
		return hidesRows
	case !t.mentionedIn(statement, schema):
		return irrelevant
	}
	one := define.FindStringSubmatch(statement)
	switch {
	case one == nil, comment.MatchString(statement):
		return hidesRows
	case t.target(one, schema):
		if partitions.MatchString(statement[len(one[0]):]) {
			return irrelevant
		}
		return hidesRows
	case movement.MatchString(statement):
		return hidesRows
	}
	return irrelevant
}

func ascii(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// mentionedIn tells whether a statement has the table's name in it, and could mean
// this table.
func (t tableName) mentionedIn(statement, schema string) bool {
	if strings.ContainsAny(t.schema+t.name, "`\"") { // doubled in quotes of their own
		statement = strings.NewReplacer("``", "`", `""`, `"`).Replace(statement)
	}
	return hasName(statement, t.name) && (strings.EqualFold(schema, t.schema) || hasName(statement, t.schema))
}

// target tells whether the name that a pattern has found is the table's.
func (t tableName) target(groups []string, schema string) bool {
	table := groups[1]
	if groups[2] != "" {
		schema, table = unquote(groups[1]), groups[2]
	}
	return strings.EqualFold(unquote(table), t.name) && strings.EqualFold(schema, t.schema)
}

func unquote(name string) string {
	if len(name) < 2 || name[0] != '`' && name[0] != '"' {
		return name
	}
	quote := name[:1]
	return strings.ReplaceAll(name[1:len(name)-1], quote+quote, quote)
}

// hasName tells whether a name stands in a text as a whole word.
func hasName(text, name string) bool {
	text, name = strings.ToLower(text), strings.ToLower(name)
	part := func(c byte) bool {
		return c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c >= 0x80
	}
	for {
		at := strings.Index(text, name)
		if at < 0 {
			return false
		}
		end := at + len(name)
		if (at == 0 || !part(text[at-1])) && (end == len(text) || !part(text[end])) {
			return true
		}
		text = text[at+1:]
	}
}

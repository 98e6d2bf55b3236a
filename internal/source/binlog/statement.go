package binlog

import (
	"strings"
	"unicode/utf8"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// meaning is what a logged statement means for the follower of a table.
type meaning int

const (
	irrelevant meaning = iota // it does not concern this table
	beginsTx                  // it begins a transaction
	endsTx                    // it ends a transaction
	insideTx                  // it is part of a transaction: a savepoint, for example
	hidesRows                 // it may have written rows of the table that the log lacks
)

// Patterns for the parts of a definition.
const (
	// The class holds letters of both cases already. Folding it would cost 10 ms, and
	// 150 ms with the race detector.
	ident = "((?-i:`(?:[^`]|``)+`|" + `"(?:[^"]|"")+"|[\w$\x{80}-\x{10ffff}]+))`
	name  = ident + `(?:\s*\.\s*` + ident + `)?`
)

var (
	words  = lazyregexp.New(`^[A-Za-z]+`)
	tables = lazyregexp.New(`(?is)\bTABLES?\b`)
	// define matches the usual definitions of one table.
	define = lazyregexp.New(`(?is)^(?:ALTER|CREATE)(?:\s+(?:ONLINE|IGNORE|OR|REPLACE|TEMPORARY))*\s+TABLE\s+` +
		`(?:IF\s+(?:NOT\s+)?EXISTS\s+)?` + name + `\s*`)
	comment = lazyregexp.New(`/\*|--|#`)
	// movement matches a table that replaces another: it brings its rows along.
	movement = lazyregexp.New(`(?is)\b(?:EXCHANGE|CONVERT|RENAME)\b`)
	// partitions matches changes of partitions. They are statements of their own, and change no
	// row.
	partitions = lazyregexp.New(`(?i)^(?:ADD|DROP|TRUNCATE|REORGANIZE|COALESCE|REBUILD|OPTIMIZE|ANALYZE|CHECK|REPAIR)\s+PARTITION\b`)
	// filled matches the creation of a table from rows. They may come from a function that writes.
	filled = lazyregexp.New(`(?is)^CREATE\b.*(?:\bSELECT\b|\bVALUES\b|\bTABLE\b.*\bTABLE\b)`)
	// harmless matches definitions whose inner statements do not run, and of tables whose rows are
	// never logged.
	harmless = lazyregexp.New(`(?i)^(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:DEFINER|ALGORITHM|VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT)|DROP\s+TEMPORARY)\b`)
)

// meaningOf interprets a statement that was logged while schema was the default.
//
// A server that logs rows logs no statement for them. So a statement that may write rows comes from
// a session with another binlog_format. Its text does not show what it wrote: a trigger, a function
// or a view leads to any table. Only statements whose first words leave no doubt count as
// irrelevant.
func (t tableName) meaningOf(statement, schema string) meaning {
	statement = strip(statement)
	word := words.Compiled().FindString(statement)
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

// strip removes the comments before a statement. If a comment for some versions contains the whole
// statement, strip returns its content. If it contains a part, strip returns "".
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

// definition is meaningOf for definitions. A table that is defined anew may have rows with other
// IDs.
func (t tableName) definition(statement, schema string) meaning {
	switch {
	case !tables.MatchString(statement), harmless.MatchString(statement):
		return irrelevant
	case filled.MatchString(statement), !ascii(t.schema+t.name) && !ascii(statement): // its name may be in another character set
		return hidesRows
	case !t.mentionedIn(statement, schema):
		return irrelevant
	}
	one := define.Compiled().FindStringSubmatch(statement)
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

// mentionedIn reports whether a statement contains the table's name and could mean this table.
func (t tableName) mentionedIn(statement, schema string) bool {
	if strings.ContainsAny(t.schema+t.name, "`\"") { // the statement doubles quotes within quotes
		statement = strings.NewReplacer("``", "`", `""`, `"`).Replace(statement)
	}
	return hasName(statement, t.name) && (strings.EqualFold(schema, t.schema) || hasName(statement, t.schema))
}

// target reports whether a pattern has matched the table's name.
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

// hasName reports whether a text contains a name as a whole word.
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

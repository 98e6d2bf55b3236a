package binlog

import (
	"regexp"
	"strings"
)

// meaning is what a statement in the log is to the follower of a table.
type meaning int

const (
	nothing meaning = iota // for this table
	begins                 // a transaction
	ends                   // a transaction
	within                 // a transaction: a savepoint, say
	alters                 // the table's columns, maybe
	hides                  // rows that the table got and the log does not show
)

// The parts of statements that are looked for.
const (
	// A comment that begins with ! is none to the server.
	space = `(?:\s|/\*(?:[^!M]|M[^!]).*?\*/|--\s.*?\n|#.*?\n)*`
	// The class holds letters of both cases already. Folding it would cost each start
	// 10 ms, and 150 ms with the race detector.
	ident = "((?-i:`(?:[^`]|``)+`|" + `"(?:[^"]|"")+"|[\w$\x{80}-\x{10ffff}]+))`
	name  = ident + space + `(?:\.` + space + ident + `)?`
)

var (
	head  = regexp.MustCompile(`(?is)^` + space + `(?:/\*M?!\d*` + space + `)?`)
	words = regexp.MustCompile(`^[A-Za-z]+`)
	// What the server writes into its log in place of rows, if some session has set
	// another binlog_format.
	insert = regexp.MustCompile(`(?is)^(?:INSERT|REPLACE)\b` + space +
		`(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE|INTO)\b` + space + `)*` + name)
	tables = regexp.MustCompile(`(?is)\bTABLES?\b`)
	// A definition of one table, as nearly all are written.
	define = regexp.MustCompile(`(?is)^(?:ALTER|CREATE)(?:\s+(?:ONLINE|IGNORE|OR|REPLACE|TEMPORARY))*\s+TABLE\s+` +
		`(?:IF\s+(?:NOT\s+)?EXISTS\s+)?` + name)
	// A table that comes in another's place brings its rows along: by RENAME, and as a
	// partition or a file.
	movement = regexp.MustCompile(`(?is)\b(?:EXCHANGE\s+PARTITION|CONVERT\s+TABLE|IMPORT\s+(?:PARTITION|TABLESPACE)|RENAME)\b`)
	renaming = regexp.MustCompile(`(?is)^RENAME\s+(?:COLUMN|INDEX|KEY)\b`)
)

// meaningOf reads a statement that was logged while schema was the default. It errs
// on the safe side: it need not be right about what a person may write, only never
// take what hides rows for nothing.
func (t tableName) meaningOf(statement, schema string) meaning {
	statement = statement[len(head.FindString(statement)):]
	word := words.FindString(statement)
	rest := strings.ToUpper(strings.TrimSpace(statement[len(word):min(len(statement), len(word)+20)]))
	word = strings.ToUpper(word)
	switch word {
	case "BEGIN":
		return begins
	case "COMMIT":
		return ends
	case "ROLLBACK":
		if strings.HasPrefix(rest, "TO") {
			return within
		}
		return ends
	case "SAVEPOINT", "RELEASE":
		return within
	case "XA":
		switch {
		case strings.HasPrefix(rest, "START"), strings.HasPrefix(rest, "BEGIN"):
			return begins
		case strings.HasPrefix(rest, "END"):
			return within
		}
		return ends // PREPARE, COMMIT, ROLLBACK
	}
	if !t.mentionedIn(statement, schema) {
		return nothing
	}
	switch word {
	case "INSERT", "REPLACE":
		if into := insert.FindStringSubmatch(statement); into != nil && !t.target(into, schema) {
			return nothing
		}
		return hides
	case "UPDATE", "LOAD", "WITH", "CALL":
		return hides
	case "ALTER", "CREATE", "RENAME", "DROP":
		return t.definition(statement, schema)
	}
	return nothing
}

// definition is meaningOf for statements that define things.
func (t tableName) definition(statement, schema string) meaning {
	if !tables.MatchString(statement) {
		return nothing
	}
	for _, at := range movement.FindAllStringIndex(statement, -1) {
		if !renaming.MatchString(statement[at[0]:]) {
			return hides
		}
	}
	if one := define.FindStringSubmatch(statement); one != nil && !t.target(one, schema) {
		return nothing
	}
	return alters
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

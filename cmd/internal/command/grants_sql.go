package command

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/lazyregexp"
	"github.com/ordergate/ordergate/internal/source/dsn"
)

// sortedKeys returns the keys of a map in their order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// account is the user of one data source name, and what it reads.
type account struct {
	databaseGrants
	user, database string
	replicates     bool
	tables         []string            // in their order
	columns        map[string][]string // by table
	publications   []string            // statements
}

// sqlGrants returns the statements for each data source name of the file.
func sqlGrants(c *config.Config) []databaseGrants {
	var accounts []*account
	for _, name := range sortedKeys(c.Sources) {
		s := c.Sources[name]
		if !s.Live() {
			continue
		}
		at := cmp.Or(s.DSNEnv, s.DSNFile)
		i := slices.IndexFunc(accounts, func(a *account) bool { return a.DSN == at && a.Kind == s.Kind })
		if i < 0 {
			i = len(accounts)
			accounts = append(accounts, newAccount(at, s))
		}
		accounts[i].add(s)
	}
	all := []databaseGrants{}
	for _, a := range accounts {
		if a.Kind == config.SourceMySQL {
			a.mysql()
		} else {
			a.postgres()
		}
		all = append(all, a.databaseGrants)
	}
	return all
}

func newAccount(at string, s config.Source) *account {
	a := &account{databaseGrants: databaseGrants{DSN: at, Kind: s.Kind}, user: "ordergate", columns: make(map[string][]string)}
	if s.Kind == config.SourceMySQL {
		a.database = "DATABASE"
		if parsed, ok := dsn.MySQL(string(s.DSN), nil); ok && s.DSN != "" {
			a.user, a.database = cmp.Or(parsed.User, a.user), cmp.Or(parsed.DBName, a.database)
		}
		return a
	}
	a.database = "public"
	if parsed, err := pgconn.ParseConfig(string(s.DSN)); err == nil && s.DSN != "" {
		a.user = cmp.Or(parsed.User, a.user)
		if schema, _, _ := strings.Cut(parsed.RuntimeParams["search_path"], ","); schema != "" {
			a.database = strings.TrimSpace(schema)
		}
	}
	return a
}

// add adds the columns of a source, and what follows its table.
func (a *account) add(s config.Source) {
	if !slices.Contains(a.tables, s.Table) {
		a.tables = append(a.tables, s.Table)
	}
	columns := a.columns[s.Table]
	for _, column := range append([]string{cmp.Or(s.CursorColumn, s.IDColumn), s.IDColumn}, slices.Sorted(maps.Values(s.PartColumns))...) {
		if !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
	}
	a.columns[s.Table] = columns
	a.replicates = a.replicates || s.SendsChanges()
	if s.Follow != config.FollowLogical {
		return
	}
	a.publications = append(a.publications, fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert, update');", a.quote(s.Publication), a.table(s.Table)))
}

func (a *account) mysql() {
	user := a.user
	if !plainName.MatchString(user) {
		user = "'" + strings.ReplaceAll(user, "'", "''") + "'"
	}
	user += "@'%'"
	if a.database == "DATABASE" && slices.ContainsFunc(a.tables, func(table string) bool { return !strings.Contains(table, ".") }) {
		a.say("-- %s is not set: put its database in place of DATABASE.", a.DSN)
	}
	a.say("CREATE USER IF NOT EXISTS %s IDENTIFIED BY 'PASSWORD';", user)
	if a.replicates {
		a.say("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO %s;", user)
	}
	for _, table := range a.tables {
		a.say("GRANT SELECT (%s) ON %s TO %s;", a.list(table), a.table(table), user)
	}
}

func (a *account) postgres() {
	user, replication := a.quote(a.user), ""
	if a.replicates {
		replication = " REPLICATION"
	}
	a.say("CREATE ROLE %s LOGIN%s PASSWORD 'PASSWORD';", user, replication)
	var schemas []string
	for _, table := range a.tables {
		schema, _, ok := strings.Cut(table, ".")
		if !ok {
			schema = a.database
		}
		if !slices.Contains(schemas, schema) {
			schemas = append(schemas, schema)
			a.say("GRANT USAGE ON SCHEMA %s TO %s;", a.quote(schema), user)
		}
	}
	for _, table := range a.tables {
		a.say("GRANT SELECT (%s) ON %s TO %s;", a.list(table), a.table(table), user)
	}
	if len(a.publications) > 0 {
		a.say("-- Publish inserts alone where the ID is no part of the table's replica identity.")
		a.Statements = append(a.Statements, a.publications...)
	}
}

func (a *account) say(format string, args ...any) {
	a.Statements = append(a.Statements, fmt.Sprintf(format, args...))
}

func (a *account) list(table string) string {
	names := make([]string, len(a.columns[table]))
	for i, column := range a.columns[table] {
		names[i] = a.quote(column)
	}
	return strings.Join(names, ", ")
}

// table returns the name of a table with its database or schema.
func (a *account) table(name string) string {
	schema, table, ok := strings.Cut(name, ".")
	if !ok {
		schema, table = a.database, name
	}
	return a.quote(schema) + "." + a.quote(table)
}

// plainName matches names that mean the same without quotes, in both kinds of database.
var plainName = lazyregexp.New(`^[a-z_][a-z0-9_]*$`)

// reserved are words that are no names without quotes, and that tables and columns have as names.
var reserved = strings.Fields("all analyse analyze and any as asc between both by call case cast change check collate column condition constraint create cross current cursor database databases default delete desc describe distinct div do drop each else end except exists explain false fetch for force foreign from fulltext function generated grant group groups having if ignore in index inner insert int integer interval into is join key keys kill lag lead left like limit lines load lock long loop match mod natural not null numeric of off offset on only or order out outer over partition placing primary procedure range rank read real references release rename repeat replace require return returning row rows schema schemas select session_user set show signal some sql ssl starting symmetric system table tables terminated then to trailing trigger true undo union unique unlock unsigned update usage use user using values varying when where while window with write xor")

// quote quotes a name where it has to be.
func (a *account) quote(name string) string {
	if plainName.MatchString(name) && !slices.Contains(reserved, name) || name == "DATABASE" {
		return name
	}
	mark := `"`
	if a.Kind == config.SourceMySQL {
		mark = "`"
	}
	return mark + strings.ReplaceAll(name, mark, mark+mark) + mark
}

package logical

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// setup is what depends on the configuration of the database.
type setup struct {
	server  string // identity of the running server
	system  string // identity of the database cluster
	version int    // for example 150018
	pages   pages

	oid       uint32   // of the table
	tableName string   // quoted
	kind      string   // pg_class.relkind
	columns   []string // of a full ID: of its parts, and then the ID's own
	all       []string // columns of the table, in order
	numbers   []int    // of all, which counts dropped columns too
	padded    []bool   // by column: of type char(n), padded with blanks
	keyed     bool     // the log shows whether an ID changes
	identity  bool     // the table has a replica identity, so the log may contain updates
	part      bool     // it is a partition of another table

	table tableState
}

// serverName is the SQL for the identity of a running server within its cluster.
const serverName = `(SELECT system_identifier FROM pg_control_system()) || '@' || extract(epoch FROM pg_postmaster_start_time())`

// readSetup reads the configuration of the server and the table. An unsuitable one is a permanent
// error.
func (f *Follower) readSetup(ctx context.Context, conn *pgx.Conn) (s setup, err error) {
	var level string
	var replica bool
	err = conn.QueryRow(ctx, `SELECT current_setting('wal_level'), pg_is_in_recovery(), `+serverName+`,
		(SELECT system_identifier::text FROM pg_control_system()), current_setting('server_version_num')::int,
		(SELECT setting::bigint FROM pg_settings WHERE name = 'wal_block_size'),
		(SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size')`).
		Scan(&level, &replica, &s.server, &s.system, &s.version, &s.pages.page, &s.pages.file)
	switch {
	case err != nil:
		return s, explain(err)
	case replica:
		// A failover may be under way.
		return s, errors.New("the server is a replica; the primary is what has to be followed")
	case s.version < oldest:
		return s, follow.Permanent(fmt.Errorf("the server is PostgreSQL %d; %d or newer can be followed", s.version/10000, oldest/10000))
	case level != "logical":
		return s, follow.Permanent(fmt.Errorf("the server's wal_level is %s; set it to logical and restart the server", level))
	}
	return s, f.readTable(ctx, conn, &s)
}

// oldest is the first version that reports a slot whose changes it has dropped.
const oldest = 130000

// textual are the types whose text is the ID, as SELECT shows it.
var textual = []string{"int2", "int4", "int8", "numeric", "text", "varchar", "bpchar", "uuid", "citext"}

// readTable reads the table and its columns.
func (f *Follower) readTable(ctx context.Context, conn *pgx.Conn, s *setup) error {
	s.keyed = true
	for _, name := range f.opts.Columns() {
		if err := f.readColumn(ctx, conn, s, name); err != nil {
			return err
		}
	}
	return explain(conn.QueryRow(ctx, `SELECT array_agg(attname::text ORDER BY attnum), array_agg(attnum::int ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped`, s.oid).Scan(&s.all, &s.numbers))
}

// readColumn reads the table and one of its columns.
func (f *Follower) readColumn(ctx context.Context, conn *pgx.Conn, s *setup, name string) error {
	var persistence, replident, base, generated string
	var foreign *string
	var column, typ *string
	var inKey, alike bool
	err := conn.QueryRow(ctx, `SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text, c.relreplident::text,
			a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(b.typname, ''),
			EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
				AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END),
			c.relreplident IN ('f', 'i') OR c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
			c.relispartition, coalesce(a.attgenerated::text, ''), (WITH RECURSIVE `+family("$1")+` SELECT member FROM family WHERE NOT logged LIMIT 1),
			(WITH RECURSIVE `+family("$1")+` SELECT bool_and(alike) FROM family)
		FROM pg_class c
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
		WHERE c.oid = to_regclass($1)`, f.table.Sanitize(), name).
		Scan(&s.oid, &s.tableName, &s.kind, &persistence, &replident, &column, &typ, &base, &inKey, &s.identity, &s.part, &generated, &foreign, &alike)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return follow.Permanent(errors.New("there is no such table"))
	case err != nil:
		return explain(err)
	case s.kind != "r" && s.kind != "p":
		return follow.Permanent(errors.New("it is no table"))
	case persistence != "p":
		return follow.Permanent(errors.New("the table is unlogged or temporary: its changes are in no log"))
	case foreign != nil:
		return follow.Permanent(fmt.Errorf("the rows of %s belong to the table, but the log does not have them under its name: only partitions are followed, and none that is foreign or unlogged; use follow: poll", *foreign))
	case generated != "":
		return follow.Permanent(fmt.Errorf("column %s is generated: it is not in the log; use follow: poll", name))
	case column == nil:
		return follow.Permanent(fmt.Errorf("the table has no column %s", name))
	case !slices.Contains(textual, base):
		return follow.Permanent(fmt.Errorf("IDs of type %s cannot be followed; integers, numeric, text, varchar, char and uuid can", *typ))
	}
	s.columns, s.padded = append(s.columns, *column), append(s.padded, base == "bpchar")
	s.keyed = s.keyed && alike && (replident == "f" || inKey)
	return nil
}

// family is the SQL for a table with all tables that inherit from it. For each it selects the name,
// and the file with its rows together with the transactions that attached it to the table: rows that
// it got while it was detached are in no log. It also selects whether the log has the rows under the table's name,
// and whether the log shows changed IDs as it does for the table.
func family(table string) string {
	return `children AS (
			SELECT to_regclass(` + table + `)::oid AS oid, '' AS attached
			UNION SELECT i.inhrelid, p.attached || ':' || i.xmin FROM children p JOIN pg_inherits i ON i.inhparent = p.oid
				WHERE to_jsonb(i) ->> 'inhdetachpending' IS DISTINCT FROM 'true'
		), family AS (
			SELECT c.oid::regclass::text AS member, c.oid || ':' || c.relfilenode || attached AS file,
				c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND (c.relispartition OR c.oid = to_regclass(` + table + `)) AS logged,
				c.relreplident <> 'i' AND c.relreplident = (SELECT t.relreplident FROM pg_class t WHERE t.oid = to_regclass(` + table + `))
					OR c.oid = to_regclass(` + table + `) AS alike
			FROM children JOIN pg_class c USING (oid)
		)`
}

// tableStateSQL is the SQL for [tableState], of publication $1, table $2 and columns $3. The text is
// NULL if the publication does not contain the table's inserts.
func (s *setup) tableStateSQL() string {
	bySchema := "NULL::oid"
	if s.version >= 150000 {
		bySchema = `(SELECT n.oid FROM pg_publication_namespace n JOIN pg_class c ON c.relnamespace = n.pnnspid WHERE n.pnpubid = p.oid AND c.oid = to_regclass($2))`
	}
	return `(WITH RECURSIVE ` + family("$2") + `
		SELECT p.oid || '.' || c.oid || '.' || coalesce(
			(SELECT r.oid FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid), ` + bySchema + `,
			CASE WHEN p.puballtables THEN 0::oid END) || '.' || p.xmin || '.' || a.numbers || '.' || c.relispartition || '.' || (SELECT bool_and(alike) FROM family)
		FROM pg_publication p, pg_class c, LATERAL (
			SELECT string_agg(a.attnum::text, '+' ORDER BY k.n) AS numbers, count(*) AS found
			FROM unnest($3::text[]) WITH ORDINALITY k(name, n) JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = k.name AND NOT a.attisdropped) a
		WHERE p.pubname = $1 AND p.pubinsert AND c.oid = to_regclass($2) AND a.found = cardinality($3::text[])
			AND NOT EXISTS (SELECT FROM family WHERE NOT logged)),
		ARRAY(WITH RECURSIVE ` + family("$2") + ` SELECT file FROM family ORDER BY file)`
}

// tableState identifies how the log has the table's rows. If it changes, rows may be missing.
type tableState struct {
	// text identifies the table, its columns of IDs, and its entry in the publication. Another table
	// or column may take the name, and the table may have been out of the publication for a while.
	text string
	// files hold the rows. A new entry with rows belongs to a partition that was attached, or to a
	// table that was rewritten.
	files []string
}

// sum returns a checksum of the files.
func (w tableState) sum() string {
	sum := sha256.Sum256([]byte(strings.Join(w.files, " ")))
	return hex.EncodeToString(sum[:8])
}

// findRewritten returns a table with rows in a new file, "" if there is none. It waits while the
// table is locked.
func findRewritten(ctx context.Context, conn *pgx.Conn, before, after []string) (table string, err error) {
	for _, file := range after {
		if slices.Contains(before, file) {
			continue
		}
		oid, _, _ := strings.Cut(file, ":")
		err = conn.QueryRow(ctx, `SELECT $1::oid::regclass::text WHERE pg_relation_size($1::oid) > 0`, oid).Scan(&table)
		if !errors.Is(err, pgx.ErrNoRows) {
			return table, err
		}
	}
	return "", nil
}

// ensurePublication creates the publication if it is missing, and checks it.
func (f *Follower) ensurePublication(ctx context.Context, conn *pgx.Conn, s *setup) error {
	name := pgx.Identifier{f.opts.Publication}.Sanitize()
	err := conn.QueryRow(ctx, `SELECT FROM pg_publication WHERE pubname = $1`, f.opts.Publication).Scan()
	if errors.Is(err, pgx.ErrNoRows) {
		create := "CREATE PUBLICATION " + name + " FOR TABLE " + s.tableName + " WITH (" + s.publicationOptions() + ")"
		f.log.Info("creating the publication", "sql", create)
		if _, err = conn.Exec(ctx, create); err != nil {
			if e := serverError(err); e != nil && e.Code == insufficientPrivilege {
				return follow.Permanent(fmt.Errorf("there is no publication %s, and to create it: %s; run: %s", f.opts.Publication, e.Message, create))
			}
			return fmt.Errorf("creating publication %s: %w", f.opts.Publication, explain(err))
		}
	} else if err != nil {
		return explain(err)
	}
	var text *string
	var root, updates, filtered, hidden bool
	err = conn.QueryRow(ctx, `SELECT `+s.tableStateSQL()+`, coalesce((to_jsonb(p) ->> 'pubviaroot')::boolean, false), p.pubupdate,
			coalesce((SELECT bool_or(to_jsonb(r) ->> 'prqual' IS NOT NULL) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = $4), false),
			coalesce((SELECT bool_or(NOT to_jsonb(t) -> 'attnames' ?& $3::text[]) FROM pg_publication_tables t
				WHERE t.pubname = $1 AND (quote_ident(t.schemaname) || '.' || quote_ident(t.tablename))::regclass = $4::oid
				AND jsonb_typeof(to_jsonb(t) -> 'attnames') = 'array'), false)
		FROM pg_publication p WHERE p.pubname = $1`, f.opts.Publication, f.table.Sanitize(), s.columns, s.oid).
		Scan(&text, &s.table.files, &root, &updates, &filtered, &hidden)
	alter := "ALTER PUBLICATION " + name
	switch {
	case err != nil:
		return explain(err)
	case text == nil:
		return follow.Permanent(fmt.Errorf("publication %s does not publish the table's inserts; run: %s ADD TABLE %s; %s SET (publish = 'insert')",
			f.opts.Publication, alter, s.tableName, alter))
	case s.part && root:
		return follow.Permanent(fmt.Errorf("publication %s publishes the rows of a partition under the name of its table: follow that, or run: %s SET (publish_via_partition_root = false)", f.opts.Publication, alter))
	case s.kind == "p" && !root:
		return follow.Permanent(fmt.Errorf("publication %s publishes partitions under their own names; run: %s SET (publish_via_partition_root = true)", f.opts.Publication, alter))
	case filtered || hidden:
		return follow.Permanent(fmt.Errorf("publication %s leaves out rows, or the column %s; run: %s SET TABLE %s", f.opts.Publication, strings.Join(s.columns, " or "), alter, s.tableName))
	}
	s.table.text = *text
	switch {
	case !updates && !s.keyed:
		f.log.Info("rows whose ID changes are not published: the column is no part of the table's replica identity", "table", s.tableName, "column", strings.Join(s.columns, ", "))
	case updates && !s.keyed:
		f.log.Warn("all updated rows are published: the publication has updates, and the column is no part of the table's replica identity",
			"table", s.tableName, "column", strings.Join(s.columns, ", "), "publication", f.opts.Publication,
			runbook.PostgreSQL.Do("remove update from publish, or add the column to the replica identity"))
	}
	return nil
}

// publicationOptions are those of a publication that the follower creates. A table without a
// replica identity must not publish updates: the server would refuse them.
func (s *setup) publicationOptions() string {
	publish := "insert"
	if s.keyed && s.identity {
		publish += ", update"
	}
	options := "publish = '" + publish + "'"
	if s.kind == "p" {
		options += ", publish_via_partition_root = true"
	}
	return options
}

// logEnd is where the server's log ended when it was queried, and what may change with it.
type logEnd struct {
	server    string
	at        lsn        // the end of what was written, on disk or not
	table     tableState // without a text if the table is gone, or no longer published
	rewritten string     // a table, see [findRewritten]
}

// logEnd returns the end of the log. Every transaction committed before lies before it.
func (s *setup) logEnd(ctx context.Context, conn *pgx.Conn, publication, table string) (e logEnd, err error) {
	var at string
	var text *string
	err = conn.QueryRow(ctx, `SELECT `+serverName+`, pg_current_wal_insert_lsn()::text, `+s.tableStateSQL(), publication, table, s.columns).
		Scan(&e.server, &at, &text, &e.table.files)
	if err != nil {
		return e, err
	}
	if text != nil {
		e.table.text = *text
	}
	err = e.at.UnmarshalText([]byte(at))
	e.at = s.pages.end(e.at)
	return e, err
}

// oidOf returns the table's OID in a text of [tableState].
func oidOf(table string) uint32 {
	parts := strings.Split(table, ".")
	if len(parts) < 2 {
		return 0
	}
	oid, _ := strconv.ParseUint(parts[1], 10, 32)
	return uint32(oid)
}

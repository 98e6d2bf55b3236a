package logical

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// setup is what follows from how the database is set up.
type setup struct {
	server  string // the running server, as no other is called
	system  string // the database cluster
	version int    // 150018
	pages   pages

	oid      uint32 // of the table
	table    string // its name, quoted
	kind     string // pg_class.relkind
	column   string // of the IDs
	padded   bool   // with blanks, as type char(n) is
	keyed    bool   // the log tells when an ID changes
	identity bool   // the log may tell of updates at all

	// watched names the table, and how it got into the publication. If a table was
	// replaced by another of its name, or was not in the publication for a while, then
	// rows are missing from the log.
	watched string
}

// serverName is the SQL for what tells a running server from others of its cluster.
const serverName = `(SELECT system_identifier FROM pg_control_system()) || '@' || extract(epoch FROM pg_postmaster_start_time())`

// readSetup asks how the server and the table are set up. The errors of what does not
// suit us are permanent.
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
		// It may be a moment of a failover.
		return s, errors.New("the server is a replica; the primary is what has to be followed")
	case s.version < oldest:
		return s, follow.Permanent(fmt.Errorf("the server is PostgreSQL %d; %d or newer can be followed", s.version/10000, oldest/10000))
	case level != "logical":
		return s, follow.Permanent(fmt.Errorf("the server's wal_level is %s; set it to logical and restart the server", level))
	}
	return s, f.readTable(ctx, conn, &s)
}

// oldest is the first version that says when it has dropped what a slot needs.
const oldest = 130000

// textual are the types whose text is the ID, as SELECT shows it.
var textual = []string{"int2", "int4", "int8", "numeric", "text", "varchar", "bpchar", "uuid", "citext"}

// readTable asks for the table and its column.
func (f *Follower) readTable(ctx context.Context, conn *pgx.Conn, s *setup) error {
	var persistence, replident, base string
	var column, typ *string
	var inKey bool
	err := conn.QueryRow(ctx, `SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text, c.relreplident::text,
			a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(b.typname, ''),
			EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
				AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END),
			c.relreplident IN ('f', 'i') OR c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
		FROM pg_class c
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
		WHERE c.oid = to_regclass($1)`, f.table.Sanitize(), f.opts.IDColumn).
		Scan(&s.oid, &s.table, &s.kind, &persistence, &replident, &column, &typ, &base, &inKey, &s.identity)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return follow.Permanent(errors.New("there is no such table"))
	case err != nil:
		return explain(err)
	case s.kind != "r" && s.kind != "p":
		return follow.Permanent(errors.New("it is no table"))
	case persistence != "p":
		return follow.Permanent(errors.New("the table is unlogged or temporary: its changes are in no log"))
	case column == nil:
		return follow.Permanent(fmt.Errorf("the table has no column %s", f.opts.IDColumn))
	case !slices.Contains(textual, base):
		return follow.Permanent(fmt.Errorf("IDs of type %s cannot be followed; integers, numeric, text, varchar, char and uuid can", *typ))
	}
	s.column, s.padded = *column, base == "bpchar"
	s.keyed = replident == "f" || inKey
	return nil
}

// watched is the SQL for [setup.watched], of publication $1 and table $2; NULL if the
// publication does not tell the table's inserts.
func (s *setup) watchedSQL() string {
	bySchema := "NULL::oid"
	if s.version >= 150000 {
		bySchema = `(SELECT n.oid FROM pg_publication_namespace n JOIN pg_class c ON c.relnamespace = n.pnnspid WHERE n.pnpubid = p.oid AND c.oid = to_regclass($2))`
	}
	return `(SELECT p.oid || '.' || to_regclass($2)::oid || '.' || coalesce(
			(SELECT r.oid FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = to_regclass($2)), ` + bySchema + `,
			CASE WHEN p.puballtables THEN 0::oid END)
		FROM pg_publication p WHERE p.pubname = $1 AND p.pubinsert)`
}

// ensurePublication makes the publication if it is missing, and looks at it.
func (f *Follower) ensurePublication(ctx context.Context, conn *pgx.Conn, s *setup) error {
	name := pgx.Identifier{f.opts.Publication}.Sanitize()
	err := conn.QueryRow(ctx, `SELECT FROM pg_publication WHERE pubname = $1`, f.opts.Publication).Scan()
	if errors.Is(err, pgx.ErrNoRows) {
		create := "CREATE PUBLICATION " + name + " FOR TABLE " + s.table + " WITH (" + s.publicationOptions() + ")"
		f.log.Info("creating the publication", "sql", create)
		if _, err = conn.Exec(ctx, create); err != nil {
			if e := refusal(err); e != nil && e.Code == insufficientPrivilege {
				return follow.Permanent(fmt.Errorf("there is no publication %s, and to create it: %s; run: %s", f.opts.Publication, e.Message, create))
			}
			return fmt.Errorf("creating publication %s: %w", f.opts.Publication, explain(err))
		}
	} else if err != nil {
		return explain(err)
	}
	var watched *string
	var root, updates, filtered, hidden bool
	err = conn.QueryRow(ctx, `SELECT `+s.watchedSQL()+`, coalesce((to_jsonb(p) ->> 'pubviaroot')::boolean, false), p.pubupdate,
			coalesce((SELECT bool_or(to_jsonb(r) ->> 'prqual' IS NOT NULL) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = $3), false),
			coalesce((SELECT bool_or(NOT to_jsonb(t) -> 'attnames' ? $4) FROM pg_publication_tables t
				WHERE t.pubname = $1 AND (quote_ident(t.schemaname) || '.' || quote_ident(t.tablename))::regclass = $3::oid
				AND jsonb_typeof(to_jsonb(t) -> 'attnames') = 'array'), false)
		FROM pg_publication p WHERE p.pubname = $1`, f.opts.Publication, f.table.Sanitize(), s.oid, s.column).
		Scan(&watched, &root, &updates, &filtered, &hidden)
	alter := "ALTER PUBLICATION " + name
	switch {
	case err != nil:
		return explain(err)
	case watched == nil:
		return follow.Permanent(fmt.Errorf("publication %s does not tell the table's inserts; run: %s ADD TABLE %s; %s SET (publish = 'insert')",
			f.opts.Publication, alter, s.table, alter))
	case s.kind == "p" && !root:
		return follow.Permanent(fmt.Errorf("publication %s tells partitions by their own names; run: %s SET (publish_via_partition_root = true)", f.opts.Publication, alter))
	case filtered || hidden:
		return follow.Permanent(fmt.Errorf("publication %s leaves out rows, or the column %s; run: %s SET TABLE %s", f.opts.Publication, s.column, alter, s.table))
	}
	s.watched = *watched
	switch {
	case !updates && !s.keyed:
		f.log.Info("rows whose ID changes are not told: the column is no part of the table's replica identity", "table", s.table, "column", s.column)
	case updates && !s.keyed:
		f.log.Warn("all updated rows are told: the publication has updates, and the column is no part of the table's replica identity",
			"table", s.table, "column", s.column, "publication", f.opts.Publication)
	}
	return nil
}

// publicationOptions are those of a publication of ours. A table without a replica
// identity must not publish its updates: the server would refuse them.
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

// end is where the server's log ended when it was asked, and what else changes.
type end struct {
	server  string
	at      lsn    // of what was written, if not yet to the disk
	watched string // "" if the table is gone, or no longer published
}

// end asks where the log ends. All that any client was told was committed is before
// that.
func (s *setup) end(ctx context.Context, conn *pgx.Conn, publication, table string) (e end, err error) {
	var at string
	var watched *string
	err = conn.QueryRow(ctx, `SELECT `+serverName+`, pg_current_wal_insert_lsn()::text, `+s.watchedSQL(), publication, table).
		Scan(&e.server, &at, &watched)
	if err != nil {
		return e, err
	}
	if watched != nil {
		e.watched = *watched
	}
	err = e.at.UnmarshalText([]byte(at))
	e.at = s.pages.end(e.at)
	return e, err
}

// oidOf returns the table's number in setup.watched.
func oidOf(watched string) uint32 {
	parts := strings.Split(watched, ".")
	if len(parts) < 2 {
		return 0
	}
	oid, _ := strconv.ParseUint(parts[1], 10, 32)
	return uint32(oid)
}

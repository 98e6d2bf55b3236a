package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresTable reads the structure of a table.
type postgresTable struct {
	conn    *postgresConn
	opts    TableOptions
	oid     string
	kind    string // relkind
	columns map[string]postgresColumn
}

// postgresColumn is a column in the catalogue.
type postgresColumn struct {
	name     string
	ordinal  string // in the table
	typ      string // in SQL
	base     string // name of the type, or of the type below a domain
	category string // of the type
	nullable bool
	fraction int  // decimal places of a second
	bytewise bool // in its collation, different texts are unequal
	// cast converts a text to the type, or that below a domain, in the collation.
	cast, collation string
}

func (p *postgresTable) describe(ctx context.Context) (*layout, error) {
	l := p.emptyLayout()
	l.ordered = l.table
	// The catalogue does not show a missing right. This does.
	probed := append([]string{p.opts.IDColumn, p.opts.CursorColumn}, p.opts.PartColumns...)
	quoted := make([]string, len(probed))
	for i, name := range probed {
		quoted[i] = quotePostgres(name)
	}
	probe := fmt.Sprintf("SELECT %s FROM %s LIMIT 0", strings.Join(quoted, ", "), l.table)
	if err := p.conn.query(ctx, newStatement(Postgres, probe), func([][]byte) {}); err != nil {
		return nil, fmt.Errorf("columns %s: %w", strings.Join(probed, " and "), p.explain(ctx, err, l.table, probed))
	}
	if err := p.status(ctx, l); err != nil {
		return nil, fmt.Errorf("asking for its size: %w", err)
	}
	if err := p.readColumns(ctx); err != nil {
		return nil, fmt.Errorf("asking for its columns: %w", err)
	}
	id, err := p.column(p.opts.IDColumn)
	if err != nil {
		return nil, fmt.Errorf("ID column %w", err)
	}
	for _, name := range p.opts.PartColumns {
		part, err := p.column(name)
		if err != nil {
			return nil, fmt.Errorf("part column %w", err)
		}
		l.parts = append(l.parts, part)
	}
	cursor, err := p.column(p.opts.CursorColumn)
	if err != nil {
		return nil, fmt.Errorf("cursor column %w", err)
	}
	l.id, l.cursor = id, cursor
	x, err := p.indexes(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for its indexes: %w", err)
	}
	if err := p.foldCases(ctx, l); err != nil {
		return nil, fmt.Errorf("asking for its unique indexes: %w", err)
	}
	p.order(l, x)
	if err := p.sequence(ctx, l); err != nil {
		return nil, fmt.Errorf("asking for its sequence: %w", err)
	}
	l.derive(p.opts.Ascending)
	return l, p.comparable(ctx, l)
}

func (p *postgresTable) emptyLayout() *layout {
	return &layout{kind: Postgres, table: pgx.Identifier(strings.Split(p.opts.Table, ".")).Sanitize()}
}

// explain adds to an error that a table, a column or a right is missing what the user can do.
// PostgreSQL reports these apart.
func (p *postgresTable) explain(ctx context.Context, err error, table string, columns []string) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || e.Routine == pgRowSecurity || e.Code != pgNoRight && e.Code != pgNoTable && e.Code != pgNoColumn {
		return err
	}
	schema, name, found := strings.Cut(p.opts.Table, ".")
	if !found {
		schema, name = "", p.opts.Table
	}
	if e.Code == pgNoRight {
		usage := ""
		if found {
			usage = "GRANT USAGE ON SCHEMA " + quotePostgres(schema) + "; "
		}
		return fmt.Errorf("%w; the user needs: %sGRANT SELECT ON %s", err, usage, table)
	}
	const tables = `SELECT table_name FROM information_schema.tables
		WHERE table_schema = $1 OR $1 = '' AND table_schema = ANY (current_schemas(false)) LIMIT 1000`
	const named = `SELECT attname FROM pg_catalog.pg_attribute
		WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND has_column_privilege(attrelid, attnum, 'SELECT')`
	help := missing{
		table: name, columns: columns,
		tables: readNames(ctx, p.conn, newStatement(Postgres, tables, schema)),
		named:  readNames(ctx, p.conn, newStatement(Postgres, named, table)),
	}
	return help.explain(err)
}

// order chooses the tie.
func (p *postgresTable) order(l *layout, x indexes) {
	var primary *column
	if key := x.primaryKey(); key != "" {
		if c, err := p.column(key); err == nil {
			primary = &c
		}
	}
	chosen := l.chooseOrder(x, primary, bytewisePostgres)
	if p.kind == "v" {
		l.warn("it is a view: whether its cursor column %s has an index, and is unique, cannot be seen", l.cursor.name)
		return
	}
	l.warnMissingIndex(x, chosen)
}

// comparable has the server check the statements of a read.
func (p *postgresTable) comparable(ctx context.Context, l *layout) error {
	_, err := p.conn.prepare(ctx, l.pageQuery(Span{From: Position{Identity: l.identity}}, 1).text)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == pgNoOrder {
		return fmt.Errorf("cursor column %s is of type %s, which has no order to read by: use a number, a time or a short text", l.cursor.name, l.cursor.typ)
	}
	if err != nil {
		return fmt.Errorf("ordering by %s: %w", l.cursor.name, postgresError(ctx, err))
	}
	return nil
}

// status reads the estimated number of rows, and the kind of table and server.
func (p *postgresTable) status(ctx context.Context, l *layout) error {
	const text = "SELECT oid, relkind, reltuples::bigint, pg_is_in_recovery() FROM pg_catalog.pg_class WHERE oid = to_regclass($1)"
	err := p.conn.query(ctx, newStatement(Postgres, text, l.table), func(c [][]byte) {
		p.oid, p.kind = string(c[0]), string(c[1])
		l.estimate, _ = strconv.ParseInt(string(c[2]), 10, 64)
		l.estimate = max(l.estimate, 0) // -1: never counted
		if string(c[3]) == "t" {
			l.warn("the server is a standby: it may lack orders that its primary has")
		}
	})
	if err == nil && p.oid == "" {
		err = errors.New("the catalogue does not show it")
	}
	return err
}

// readColumns reads the columns that the user may read.
func (p *postgresTable) readColumns(ctx context.Context) error {
	p.columns = map[string]postgresColumn{}
	const text = `SELECT a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), b.typname, b.typcategory, a.attnotnull,
			a.atttypmod, coalesce(c.collisdeterministic, true), quote_ident(bn.nspname) || '.' || quote_ident(b.typname),
			quote_ident(cn.nspname) || '.' || quote_ident(c.collname)
		FROM pg_catalog.pg_attribute a
		JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
		JOIN pg_catalog.pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
		JOIN pg_catalog.pg_namespace bn ON bn.oid = b.typnamespace
		LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
		LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = c.collnamespace
		WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')`
	return p.conn.query(ctx, newStatement(Postgres, text, p.oid), func(c [][]byte) {
		one := postgresColumn{
			name: string(c[0]), ordinal: string(c[1]), typ: string(c[2]), base: string(c[3]), category: string(c[4]),
			nullable: string(c[5]) != "t", bytewise: string(c[7]) == "t",
		}
		one.cast = "CAST(%s AS " + string(c[8]) + ")"
		if one.collation = string(c[9]); one.collation != "" {
			one.cast += " COLLATE " + one.collation
		}
		one.fraction = microseconds
		if mod, err := strconv.Atoi(string(c[6])); err == nil && mod >= 0 {
			one.fraction = min(mod, microseconds)
		}
		p.columns[one.name] = one
	})
}

// microseconds is the precision of PostgreSQL's times in decimal places.
const microseconds = 6

// column returns a column as it is queried. Values are passed as text, which is exact except for
// floating-point numbers.
func (p *postgresTable) column(name string) (column, error) {
	d, ok := p.columns[name]
	if !ok {
		return column{}, fmt.Errorf("%s: the catalogue does not show it", name)
	}
	quoted := quotePostgres(name)
	c := column{name: name, typ: d.typ, ordinal: p.oid + "." + d.ordinal, sql: quoted, out: quoted, in: "%s", nullable: d.nullable, exact: true}
	switch {
	case d.category == "N":
		c.family, c.value = familyNumber, d.cast
	case d.base == "uuid":
		c.family, c.value = familyUUID, d.cast
	case d.category == "S":
		c.family, c.value, c.collation = familyText, d.cast, d.collation
	}
	switch d.base {
	case "float4", "float8", "money":
		return column{}, fmt.Errorf("%s is of type %s, which has no exact text", name, d.typ)
	case "timestamp", "timestamptz":
		c.resolution = fractionOf(d.fraction)
	case "date":
		c.resolution = dateResolution
	case "int2", "int4", "int8", "numeric":
	case "bpchar":
		c.out = "rtrim(" + quoted + ")" // without padding
		fallthrough
	case "text", "varchar", "uuid":
		c.exact = d.bytewise
	default:
		c.exact = false // for example of citext
	}
	return c, nil
}

// foldCases makes texts the same whose case differs, for columns with a unique index on lower(column).
func (p *postgresTable) foldCases(ctx context.Context, l *layout) error {
	const text = `SELECT a.attname, f.fold
		FROM pg_catalog.pg_index i
		CROSS JOIN LATERAL generate_series(1, i.indnkeyatts::int) k(n)
		JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0 AND NOT a.attisdropped
		JOIN (VALUES ('lower'), ('upper')) f(fold)
			ON pg_get_indexdef(i.indexrelid, k.n, true) IN (f.fold || '(' || quote_ident(a.attname) || ')', f.fold || '(' || quote_ident(a.attname) || '::text)')
		WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indisunique AND i.indpred IS NULL`
	return p.conn.query(ctx, newStatement(Postgres, text, p.oid), func(row [][]byte) {
		columns := []*column{&l.id}
		for i := range l.parts {
			columns = append(columns, &l.parts[i])
		}
		for _, c := range columns {
			if c.family == familyText && c.name == string(row[0]) {
				c.value = string(row[1]) + "(" + c.value + ")"
			}
		}
	})
}

// bytewisePostgres returns a column ordered by its bytes. Its collation or type may take "a" and
// "A" for equal.
func bytewisePostgres(c column) column {
	c.sql = "(" + quotePostgres(c.name) + `::text COLLATE "C")`
	c.exact = true
	return c
}

// indexes returns the indexes in the columns' own order.
func (p *postgresTable) indexes(ctx context.Context) (x indexes, err error) {
	const text = `SELECT r.relname, i.indisunique AND i.indimmediate, i.indisprimary, a.attname,
			i.indoption[k.n - 1] = 0 AND o.opcdefault AND i.indcollation[k.n - 1] = a.attcollation
		FROM pg_catalog.pg_index i
		JOIN pg_catalog.pg_class r ON r.oid = i.indexrelid
		JOIN pg_catalog.pg_am m ON m.oid = r.relam
		CROSS JOIN LATERAL generate_series(1, i.indnkeyatts::int) k(n)
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n - 1]
		LEFT JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[k.n - 1]
		WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree'
		ORDER BY r.relname, k.n`
	var broken []string // indexes whose other columns cannot be used
	err = p.conn.query(ctx, newStatement(Postgres, text, p.oid), func(c [][]byte) {
		name, n := string(c[0]), len(x.all)
		switch {
		case slices.Contains(broken, name):
		case c[3] == nil || string(c[4]) != "t":
			broken = append(broken, name)
			if n > 0 && x.all[n-1].name == name { // some of its columns are unknown
				x.all[n-1].unique, x.all[n-1].primary = false, false
			}
		case n > 0 && x.all[n-1].name == name:
			x.all[n-1].columns = append(x.all[n-1].columns, string(c[3]))
		default:
			x.all = append(x.all, index{name: name, columns: []string{string(c[3])}, unique: string(c[1]) == "t", primary: string(c[2]) == "t"})
		}
	})
	return x, err
}

// sequence determines whether the database itself increments the cursor: an identity, or a number
// whose default is the next one of a sequence. A sequence does not count if each session takes
// several numbers at a time: the session may use the low ones hours later. The same holds for an
// increment above one, as an application may use it so (Hibernate's pooled optimizer). A view's
// column has no default to check.
func (p *postgresTable) sequence(ctx context.Context, l *layout) error {
	numbers := []string{"int2", "int4", "int8", "numeric"}
	if p.kind != "r" && p.kind != "p" || !slices.Contains(numbers, p.columns[l.cursor.name].base) {
		return nil
	}
	const text = `SELECT seqcache, seqincrement > 0 AND NOT seqcycle, seqincrement FROM pg_catalog.pg_sequence WHERE seqrelid IN (
			SELECT d.objid FROM pg_catalog.pg_attribute a
			JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = a.attrelid
				AND d.refobjsubid = a.attnum AND d.classid = 'pg_catalog.pg_class'::regclass AND d.deptype = 'i'
			WHERE a.attrelid = $1::oid AND a.attname = $2 AND a.attidentity <> ''
			UNION ALL
			SELECT d.refobjid FROM pg_catalog.pg_attribute a
			JOIN pg_catalog.pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
			JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = f.oid
				AND d.refclassid = 'pg_catalog.pg_class'::regclass
			WHERE a.attrelid = $1::oid AND a.attname = $2
				AND pg_get_expr(f.adbin, f.adrelid) ~ '^nextval\(''([^'']|'''')*''::regclass\)$')`
	return p.conn.query(ctx, newStatement(Postgres, text, p.oid, l.cursor.name), func(c [][]byte) {
		cached, steps := string(c[0]) != "1", string(c[1]) == "t" && string(c[2]) != "1"
		l.autoIncrement = string(c[1]) == "t" && !cached && !steps
		if steps {
			l.warn("the sequence of %s counts in steps of %s: an application may use the numbers between them later, so rows do not come in the order of %s; use INCREMENT 1", l.cursor.name, c[2], l.cursor.name)
		}
		if cached {
			l.warn("the sequence of %s has CACHE %s: each session uses up its own numbers, so rows do not come in the order of %s; use CACHE 1", l.cursor.name, c[0], l.cursor.name)
		}
	})
}

// quotePostgres quotes an identifier.
func quotePostgres(name string) string { return pgx.Identifier{name}.Sanitize() }

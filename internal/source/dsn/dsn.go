// Package dsn parses data source names of MySQL and MariaDB, and reads passwords again that change
// while ordergate runs.
package dsn

import (
	"context"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// MySQL parses a data source name in the form of github.com/go-sql-driver/mysql, or a URL mysql://...
// It returns false if dsn is neither. There is no error: those of the parsers may quote the password.
// Each new connection has the password of [MySQLPassword]. The caller sets config.Passwd itself where it
// makes a connection without the driver.
func MySQL(dsn string, reread func() string) (*mysql.Config, bool) {
	config, ok := parseMySQL(dsn)
	if !ok || reread == nil {
		return config, ok
	}
	err := config.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
		c.Passwd = MySQLPassword(c, reread)
		return nil
	}))
	return config, err == nil
}

// MySQLPassword returns the password that the data source name has now; reread returns it. Another
// server or user there takes a restart: the password stays the one of before. A nil reread never
// changes it. MySQLPassword is safe for concurrent use, if reread is.
func MySQLPassword(config *mysql.Config, reread func() string) string {
	if reread == nil {
		return config.Passwd
	}
	if now, ok := parseMySQL(reread()); ok && now.User == config.User && now.Addr == config.Addr {
		return now.Passwd
	}
	return config.Passwd
}

// PostgresPassword is [MySQLPassword] for PostgreSQL.
func PostgresPassword(config *pgconn.Config, reread func() string) string {
	if reread == nil {
		return config.Password
	}
	if now, err := pgconn.ParseConfig(reread()); err == nil && now.User == config.User && now.Host == config.Host && now.Port == config.Port {
		return now.Password
	}
	return config.Password
}

// OnlyPasswordsDiffer reports whether two data source names are the same but for the password.
func OnlyPasswordsDiffer(a, b string) bool { return withoutPassword(a) == withoutPassword(b) }

// libpqPassword is the password among settings key=value.
var libpqPassword = lazyregexp.New(`\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|\S*)`)

func withoutPassword(dsn string) string {
	if u, err := url.Parse(dsn); err == nil && u.Host != "" {
		u.User = url.User(u.User.Username())
		return u.String()
	}
	if config, ok := parseMySQL(dsn); ok && !libpqPassword.MatchString(dsn) {
		config.Passwd = ""
		return config.FormatDSN()
	}
	return libpqPassword.Compiled().ReplaceAllString(dsn, "")
}

func parseMySQL(dsn string) (*mysql.Config, bool) {
	var user *url.Userinfo
	if strings.HasPrefix(dsn, "mysql://") {
		u, err := url.Parse(dsn)
		if err != nil || u.Host == "" {
			return nil, false
		}
		user = u.User
		dsn = "tcp(" + u.Host + ")/" + strings.TrimPrefix(u.EscapedPath(), "/") + "?" + u.RawQuery
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, false
	}
	if user != nil {
		config.User = user.Username()
		config.Passwd, _ = user.Password()
	}
	return config, true
}

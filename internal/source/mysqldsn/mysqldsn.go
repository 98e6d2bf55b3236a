// Package mysqldsn parses data source names of MySQL and MariaDB, see [Parse].
package mysqldsn

import (
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Parse parses a data source name in the form of github.com/go-sql-driver/mysql, or a URL mysql://...
// It returns false if dsn is neither. There is no error: those of the parsers may quote the password.
func Parse(dsn string) (*mysql.Config, bool) {
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

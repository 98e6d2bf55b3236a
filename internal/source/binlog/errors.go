package binlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// explain adds a remedy to a server's refusal, and marks it as permanent. It returns other errors
// as they are.
func explain(err error) error {
	code, message := serverError(err)
	switch code {
	case gomysql.ER_SPECIFIC_ACCESS_DENIED_ERROR:
		err = missingPrivilege(message)
	case gomysql.ER_DBACCESS_DENIED_ERROR, gomysql.ER_TABLEACCESS_DENIED_ERROR, gomysql.ER_COLUMNACCESS_DENIED_ERROR:
		err = fmt.Errorf("%s; the user needs: GRANT SELECT on the table", message)
	case gomysql.ER_ACCESS_DENIED_ERROR, gomysql.ER_ACCESS_DENIED_NO_PASSWORD_ERROR, gomysql.ER_HOST_NOT_PRIVILEGED,
		gomysql.ER_NOT_SUPPORTED_AUTH_MODE, gomysql.ER_MUST_CHANGE_PASSWORD, gomysql.ER_BAD_DB_ERROR:
		err = errors.New(message)
	default:
		return err
	}
	return follow.Permanent(err)
}

// explainStream is explain for an error that ended the stream.
func explainStream(err error) error {
	code, message := serverError(err)
	switch {
	// The server uses this code for every reason not to send its log.
	case code == gomysql.ER_MASTER_FATAL_ERROR_READING_BINLOG && sameServerID(message):
		return errors.New("another replica of the server has the same server_id")
	case slices.Contains([]uint16{gomysql.ER_MASTER_FATAL_ERROR_READING_BINLOG, erGTIDNotFound, erGTIDHole, erGTIDNotFound2}, code):
		return follow.Permanent(fmt.Errorf("%w: %s", follow.ErrGone, message))
	case code == gomysql.ER_ACCESS_DENIED_ERROR:
		// The password is right: the other connection used it.
		return follow.Permanent(missingPrivilege(message))
	case code != 0:
		return explain(err)
	}
	if e, ok := errors.AsType[*replication.EventError](err); ok {
		// The library's text may quote the row.
		return follow.Permanent(fmt.Errorf("%w: a %s that ends at %d", follow.ErrUnsure, e.Header.EventType, e.Header.LogPos))
	}
	if text := follow.OneLine(err); strings.HasPrefix(text, "panic ") {
		return follow.Permanent(fmt.Errorf("%w: a change has a form that is not known", follow.ErrUnsure))
	}
	return err
}

// missingPrivilege is the error of a user without the right to read the log or its end.
func missingPrivilege(message string) error {
	return fmt.Errorf("%s; the user needs: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.*", message)
}

// MariaDB's errors for a GTID checkpoint that its log lacks (mariadb.com, "MariaDB Error Code
// Reference"). MySQL has only the code above.
const (
	erGTIDNotFound  = 1945 // ER_GTID_POSITION_NOT_FOUND_IN_BINLOG
	erGTIDHole      = 1951 // ER_GTID_START_FROM_BINLOG_HOLE
	erGTIDNotFound2 = 1955 // ER_GTID_POSITION_NOT_FOUND_IN_BINLOG2
)

// sameServerID recognizes the server's message, which differs between versions ("A slave with the
// same server_uuid/server_id as this slave has connected to the master").
func sameServerID(message string) bool {
	return strings.Contains(message, "same server_uuid") || strings.Contains(message, "same server_id")
}

// serverError returns the code and message of a server's error, 0 for other errors.
func serverError(err error) (code uint16, message string) {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number, e.Message
	}
	if e, ok := errors.AsType[*gomysql.MyError](err); ok {
		return e.Code, e.Message
	}
	return 0, ""
}

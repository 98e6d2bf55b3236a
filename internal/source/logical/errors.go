package logical

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// The error codes that are handled (PostgreSQL, appendix A).
const (
	objectInUse             = "55006"
	notInPrerequisiteState  = "55000"
	undefinedObject         = "42704"
	undefinedFile           = "58P01"
	insufficientPrivilege   = "42501"
	configurationLimit      = "53400"
	invalidCatalogName      = "3D000"
	invalidAuthorizationAll = "28" // a class
)

// serverError returns a server's error, nil for other errors.
func serverError(err error) *pgconn.PgError {
	e, _ := errors.AsType[*pgconn.PgError](err)
	return e
}

// explain returns the message of a server's error, and marks permanent errors. It returns other
// errors as they are.
func explain(err error) error {
	e := serverError(err)
	switch {
	case err == nil:
		return nil
	case e == nil:
		return err
	case strings.HasPrefix(e.Code, invalidAuthorizationAll), e.Code == invalidCatalogName:
		return follow.Permanent(errors.New(e.Message))
	case e.Code == insufficientPrivilege:
		return follow.Permanent(fmt.Errorf("%s; the user needs: GRANT USAGE on the schema, GRANT SELECT on the table", e.Message))
	}
	return errors.New(e.Message)
}

// explainStream is explain for an error that ended the stream.
func (f *Follower) explainStream(err error) error {
	e := serverError(err)
	if e == nil {
		return err
	}
	switch e.Code {
	case objectInUse:
		return fmt.Errorf("%s; %w", e.Message, follow.ErrBusy)
	// The slot is missing, or the server has dropped its changes. Or the publication did not exist
	// when a change was made.
	case undefinedObject, notInPrerequisiteState, undefinedFile:
		return follow.Permanent(fmt.Errorf("%w: %s", follow.ErrGone, e.Message))
	case insufficientPrivilege:
		return f.needsReplication(e)
	}
	return explain(err)
}

func (f *Follower) needsReplication(e *pgconn.PgError) error {
	return follow.Permanent(fmt.Errorf("%s; run: ALTER ROLE %q REPLICATION", e.Message, f.config.User))
}

package admin

import (
	"cmp"
	"errors"
	"net"
	"net/http"
)

// The errors of [Server.Forget].
var (
	ErrNoAnswers = errors.New("no rule of this name stores the answers of orders")
	ErrNoOrder   = errors.New("this is no order ID by the rule's format")
)

// ForgottenReport is the answer to DELETE /v1/once/RULE/ORDER-ID.
type ForgottenReport struct {
	Rule      string `json:"rule"`
	ID        string `json:"id"`        // canonical, with its parts
	Lock      string `json:"lock"`      // its name in the configuration
	Name      string `json:"name"`      // of the stored answer
	Key       string `json:"key"`       // in Redis
	Forgotten bool   `json:"forgotten"` // false: no answer was stored
}

// serveForget deletes the stored answer of an order, for services that undo what it reports.
func (s *Server) serveForget(w http.ResponseWriter, r *http.Request) {
	report, err := s.forget(r)
	writeAnswer(w, report, err)
}

func (s *Server) forget(r *http.Request) (*ForgottenReport, error) {
	if err := s.requireToken("stored answers cannot be deleted here"); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	who := cmp.Or(query.Get("who"), "token") + "@" + HostOf(r.RemoteAddr)
	report, err := s.Forget(r.Context(), r.PathValue("rule"), r.PathValue("id"), short(who), short(query.Get("reason")))
	switch {
	case errors.Is(err, ErrNoAnswers):
		return nil, statusError{err, http.StatusNotFound}
	case errors.Is(err, ErrNoOrder):
		return nil, statusError{err, http.StatusBadRequest}
	case err != nil:
		return nil, statusError{err, http.StatusServiceUnavailable}
	}
	return report, nil
}

// HostOf returns the host of a client's address; "socket" for a client at a unix socket.
func HostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return "socket"
}

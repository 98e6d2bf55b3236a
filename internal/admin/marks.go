package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// ErrNoRule is the error of [Server.Mark] for a rule that the running configuration lacks.
var ErrNoRule = errors.New("the running ordergate has no such rule: it runs with another file, or has refused this one")

// MarkReport is the answer to POST /v1/doctor/marks: a mark for `ordergate doctor`.
type MarkReport struct {
	Mark  string    `json:"mark"`
	Nonce string    `json:"nonce"`
	Time  time.Time `json:"time"`
}

// serveMark makes a mark. The stage, the rule and the delay are parameters.
func (s *Server) serveMark(w http.ResponseWriter, r *http.Request) {
	report, err := s.makeMark(r)
	writeAnswer(w, report, err)
}

func (s *Server) makeMark(r *http.Request) (*MarkReport, error) {
	query := r.URL.Query()
	stage := gate.Stage(query.Get("stage"))
	if stage != gate.StageAuthz && stage != gate.StageProc && stage != gate.StageBackend && stage != gate.StageGuard {
		return nil, statusError{fmt.Errorf("stage: %q is not one of authz, proc, backend, guard", stage), http.StatusBadRequest}
	}
	delay := 0
	if text := query.Get("delay_ms"); text != "" {
		var err error
		if delay, err = strconv.Atoi(text); err != nil || delay < 0 || delay > int(gate.MaxMarkDelay.Milliseconds()) {
			return nil, statusError{fmt.Errorf("delay_ms: %q is not a number from 0 to %d", text, gate.MaxMarkDelay.Milliseconds()), http.StatusBadRequest}
		}
	}
	report, err := s.Mark(r.Context(), stage, query.Get("rule"), time.Duration(delay)*time.Millisecond)
	if errors.Is(err, ErrNoRule) {
		err = statusError{err, http.StatusNotFound}
	}
	return report, err
}

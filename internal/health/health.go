// Package health serves over HTTP whether the process runs, and whether it is ready.
//
// Each part of ordergate reports its [Condition]s. [Register] serves them.
package health

import (
	"encoding/json"
	"net/http"
)

// Condition is one condition of readiness. The process is ready if all conditions are.
type Condition struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	Cause  string `json:"-"` // of refusals: Reason, without the calls that are refused; "": it refuses none
}

// Refuse gives a condition the reason that calls are refused, such as "settlements", and the cause.
func (c *Condition) Refuse(calls, cause string) {
	c.Reason, c.Cause = calls+" are refused: "+cause, cause
}

// Register adds /healthz (the process runs) and /readyz (200 if every condition holds,
// otherwise 503; the body lists them as JSON either way) to a mux. It calls
// conditions for each request.
func Register(mux *http.ServeMux, conditions func() []Condition) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		list := conditions()
		status := http.StatusOK
		for _, c := range list {
			if !c.Ready {
				status = http.StatusServiceUnavailable
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"ready": status == http.StatusOK, "conditions": list})
	})
}

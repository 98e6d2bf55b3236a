package admin

import (
	"net/http"
	"time"
)

// LoadReport is the result of a load.
type LoadReport struct {
	Filter   string  `json:"filter"`
	IDs      int64   `json:"ids"`            // read
	Took     Seconds `json:"took_seconds"`   // with the wait
	Waited   Seconds `json:"waited_seconds"` // until calls had ended that may have created orders
	State    string  `json:"state"`
	Reason   string  `json:"reason"`
	Snapshot *string `json:"snapshot"` // the path of the written snapshot; null: none
}

// serveLoad reads one source again, or all. The operator guarantees that they are up to date. One
// of several sources proves nothing about the orders in the others.
func (s *Server) serveLoad(r *http.Request, name string) (any, error) {
	f, began := s.Filters[name], time.Now()
	read, waited, err := f.Reload(r.Context(), r.URL.Query().Get("source"))
	if err != nil {
		return nil, err
	}
	report := &LoadReport{Filter: name, IDs: read, Took: SecondsOf(time.Since(began)), Waited: SecondsOf(waited)}
	report.State, report.Reason = f.Filter().State()
	return report, nil
}

package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
)

// snapshotReport tells of a snapshot that was written.
type snapshotReport struct {
	Filter   string    `json:"filter"`
	Path     string    `json:"path"`
	Bytes    uint64    `json:"bytes"`
	IDs      uint64    `json:"ids"`
	Position *uint64   `json:"position"` // the last entry of the change log in it; null: it has none
	Created  time.Time `json:"created"`
	TookMS   int64     `json:"took_ms"`
}

// refusal is the answer to a request that was not done.
type refusal struct {
	Error string `json:"error"`
}

// withSnapshots adds POST /filters/<name>/snapshot, which writes one now, to a
// handler. A browser that another site has sent is turned away.
func (m *machine) withSnapshots(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /filters/{name}/snapshot", http.NewCrossOriginProtection().Handler(http.HandlerFunc(m.serveSnapshot)))
	mux.Handle("/", next)
	return mux
}

func (m *machine) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	status, answer := http.StatusOK, any(nil)
	refuse := func(with int, why string) { status, answer = with, refusal{why} }
	unit := m.filters[name]
	switch {
	case unit == nil:
		refuse(http.StatusNotFound, "there is no such filter")
	case unit.snapshots == nil:
		refuse(http.StatusNotFound, "filters."+name+" has no snapshot")
	default:
		info, err := unit.snapshots.now(r.Context())
		switch {
		case errors.Is(err, errBusy):
			refuse(http.StatusConflict, err.Error())
		case errors.Is(err, filter.ErrNotReady):
			refuse(http.StatusServiceUnavailable, err.Error())
		case err != nil:
			refuse(http.StatusInternalServerError, err.Error())
		default:
			answer = snapshotReport{name, info.Path, info.Bytes, info.IDs, entryOf(info.Position), info.Created.UTC(), info.Took.Milliseconds()}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = printJSON(w, answer) // whoever asked may be gone
}

// entryOf returns the sequence number in a position, nil for none.
func entryOf(position []byte) *uint64 {
	var at changelog.Mark
	if json.Unmarshal(position, &at) != nil {
		return nil
	}
	return &at.Seq
}

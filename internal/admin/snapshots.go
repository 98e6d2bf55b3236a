package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/loader"
)

// SnapshotReport describes a snapshot that was written.
type SnapshotReport struct {
	Filter   string    `json:"filter"`
	Path     string    `json:"path"`
	Bytes    uint64    `json:"bytes"`
	IDs      uint64    `json:"ids"`
	Position *uint64   `json:"position"` // the last entry of the change log in it; null: none
	Created  time.Time `json:"created"`
	Took     Seconds   `json:"took_seconds"`
}

// ErrorReport is the answer to a request that failed.
type ErrorReport struct {
	Error string `json:"error"`
}

// serveSnapshot writes a snapshot of a filter now.
func (s *Server) serveSnapshot(r *http.Request, name string) (any, error) {
	info, err := s.Filters[name].Snapshot(r.Context())
	switch {
	case errors.Is(err, loader.ErrNoSnapshot):
		return nil, statusError{errors.New("filters." + name + " has no snapshot"), http.StatusNotFound}
	case errors.Is(err, loader.ErrSnapshotBusy):
		return nil, statusError{err, http.StatusConflict}
	case errors.Is(err, filter.ErrNotReady):
		return nil, statusError{err, http.StatusServiceUnavailable}
	case err != nil:
		return nil, err
	}
	return SnapshotReport{name, info.Path, info.Bytes, info.IDs, entryOf(info.Position), info.Created.UTC(), SecondsOf(info.Took)}, nil
}

// entryOf returns the sequence number in a position, or nil if there is none.
func entryOf(position []byte) *uint64 {
	var at changelog.Mark
	if json.Unmarshal(position, &at) != nil {
		return nil
	}
	return &at.Seq
}

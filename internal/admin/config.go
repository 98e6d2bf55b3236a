package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/ordergate/ordergate/config"
)

// ConfigChanges is what another file changes in a configuration.
type ConfigChanges struct {
	Changes []config.Difference `json:"changes"`
	Restart []string            `json:"restart"` // paths that take one
}

// serveConfig answers with the configuration in force, as `ordergate config show` prints it.
func (s *Server) serveConfig(w http.ResponseWriter, r *http.Request) {
	e := s.Effective()
	if wantsJSON(r) {
		writeAnswer(w, e.Settings(), nil)
		return
	}
	w.Header().Set("Content-Type", "application/yaml") // RFC 9512
	_, _ = e.WriteTo(w)                                // the client may have left
}

// serveConfigDiff answers with what the file changes in the configuration in force, as `ordergate
// config diff` prints it.
func (s *Server) serveConfigDiff(w http.ResponseWriter, r *http.Request) {
	changes, restart, err := s.FileChanges()
	if err != nil {
		err = statusError{err, http.StatusUnprocessableEntity}
	}
	if err != nil || wantsJSON(r) {
		writeAnswer(w, ConfigChanges{changes, append([]string{}, restart...)}, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var text strings.Builder
	for _, d := range changes {
		fmt.Fprintln(&text, d)
	}
	for _, path := range restart {
		fmt.Fprintf(&text, "%s: takes a restart\n", path)
	}
	_, _ = io.WriteString(w, text.String()) // as above
}

func wantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

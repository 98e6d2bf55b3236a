package admin

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Condition is one thing that has to hold before the process is ready.
type Condition struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
}

// NewHandler serves /metrics, /healthz (the process runs) and /readyz (every
// condition holds: 200, otherwise 503; the body lists them as JSON either way).
// Conditions is called for each request.
func NewHandler(m *Metrics, conditions func() []Condition) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
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
	return mux
}

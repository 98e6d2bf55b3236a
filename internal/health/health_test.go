package health

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestReadiness(t *testing.T) {
	list := []Condition{{Name: "a", Ready: true}, {Name: "b", Ready: false, Reason: "loading"}}
	h := http.NewServeMux()
	Register(h, func() []Condition { return list })
	if code, body := get(t, h, "/readyz"); code != 503 || !strings.Contains(body, `"reason":"loading"`) {
		t.Errorf("one condition fails: %d %s", code, body)
	}
	list[1].Ready = true
	if code, _ := get(t, h, "/readyz"); code != 200 {
		t.Errorf("all hold: %d", code)
	}
	if code, _ := get(t, h, "/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	if code, _ := get(t, h, "/"); code != 404 {
		t.Errorf("anything else: %d", code)
	}
}

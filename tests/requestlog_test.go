package tests

import (
	"encoding/json"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// talkative has a stack log at debug.
func talkative(s settings) settings {
	s.flags = append(s.flags, "--log-level=debug")
	if *attachment == asModule {
		s.envoyArgs = append(s.envoyArgs, "--component-log-level", "dynamic_modules:debug")
	}
	return s
}

// requestOf returns the ID that Envoy's access log has for the request of a path, and checks
// the verdict there.
func (s *stack) requestOf(path, verdict string) string {
	s.t.Helper()
	var found struct{ Path, Verdict, Request string }
	bedtest.Eventually(s.t, "the access log has "+path, func() bool {
		text, err := os.ReadFile(s.envoy.Output())
		must(s.t, err)
		for line := range strings.Lines(string(text)) {
			if json.Unmarshal([]byte(line), &found) == nil &&
				(strings.HasSuffix(found.Path, path) || strings.HasSuffix(found.Path, url.QueryEscape(path))) { // hidden until its body was seen
				return true
			}
		}
		return false
	})
	if found.Verdict != verdict {
		s.t.Errorf("%s: the access log has the verdict %q, want %q", path, found.Verdict, verdict)
	}
	if len(found.Request) != 36 {
		s.t.Errorf("%s: the access log has the request %q", path, found.Request)
	}
	return found.Request
}

// TestRefusedCallsAreLogged finds each refused call in the log, by the ID that Envoy's access
// log has of its request.
func TestRefusedCallsAreLogged(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, talkative(settings{backend: b.addr(), orders: 10}))
	s.redis.HSet(t.Context(), "order:lock:5", "another:1", 1)
	tests := []struct {
		method, path string
		line         string // what it says, beside the request
	}{
		{"GET", "/orders/77", "rule=order-lookup order=77 request=%R verdict=absent"},
		{"GET", "/orders/abc", "rule=order-lookup request=%R verdict=invalid reason=malformed_id"},
		{"POST", "/orders/5/settle", "rule=commission-settle order=5 request=%R verdict=busy"},
		{"POST", "/orders/7%20/settle", "rule=commission-settle request=%R verdict=invalid reason=malformed_id"},
		{"POST", "/orders/78/settle", "rule=commission-settle order=78 request=%R verdict=absent"},
	}
	for _, tt := range tests {
		if a := s.must(tt.method, tt.path, `{"pin":"hunter2"}`, "Authorization", "Bearer hunter3", "x-request-id", "hunter4"); a.status < 400 {
			t.Errorf("%s %s: %d", tt.method, tt.path, a.status)
		}
	}
	s.server.Kill()
	s.must("POST", "/orders/6/settle", "").want(t, 503, "unavailable")

	log := func() string { return logOf(t, s.gate) }
	for _, tt := range tests {
		verdict := regexp.MustCompile(`verdict=(\w+)`).FindStringSubmatch(tt.line)[1]
		want := "msg=refused " + strings.Replace(tt.line, "%R", s.requestOf(tt.path, verdict), 1) + "\n"
		if n := strings.Count(log(), want); n != 1 {
			t.Errorf("%s %s: %d lines %q", tt.method, tt.path, n, want)
		}
	}
	request := s.requestOf("/orders/6/settle", "unavailable")
	for _, want := range []string{
		"msg=refused rule=commission-settle order=6 request=" + request + " verdict=unavailable\n",
		`msg="settlement refused" rule=commission-settle order=6 request=` + request + " key=order:lock:6 error=",
	} {
		if !strings.Contains(log(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	for line := range strings.Lines(log()) {
		if strings.Contains(line, "hunter") {
			t.Errorf("the log tells too much: %s", line)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(log()) {
			if strings.Contains(line, "refused") {
				t.Log(line)
			}
		}
	}
}

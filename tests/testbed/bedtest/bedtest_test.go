package bedtest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// recorder is a test that notes how it would have ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper()      {}
func (r *recorder) Skip(...any)  { r.ended = "skipped" }
func (r *recorder) Fatal(...any) { r.ended = "failed" }

func TestCheck(t *testing.T) {
	missing := fmt.Errorf("starting: %w", &testbed.MissingError{Program: "php", Fetch: "php"})
	tests := []struct {
		name, ci string
		err      error
		want     string
	}{
		{"fine", "", nil, ""},
		{"missing program", "", missing, "skipped"},
		{"missing program on CI", "true", missing, "failed"},
		{"a server of the matrix that lacks something", "true", fmt.Errorf("starting: %w", &testbed.LacksError{Server: "redis-6.2.14", What: "TLS"}), "skipped"},
		{"any other error", "", errors.New("no luck"), "failed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("CI", test.ci)
			var r recorder
			if bedtest.Check(&r, test.err); r.ended != test.want {
				t.Errorf("the test was %q, want %q", r.ended, test.want)
			}
		})
	}
}

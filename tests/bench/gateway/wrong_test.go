package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// brokenBackend answers 404 for orders that begin with 5 and 8, and 500 for those
// with 6.
const brokenBackend = `
worker_processes 1;
events { worker_connections 1024; }

http {
    access_log off;
    keepalive_requests 1000000000;
    server {
        listen 127.0.0.1:0;
        location /orders/5 { return 404 "gone"; }
        location /orders/6 { return 500 "broken"; }
        location /orders/8 { return 404 "gone"; }
        location / { return 200 "there"; }
    }
}
`

// TestWrongAnswers has real proxies pass on answers that are not due.
func TestWrongAnswers(t *testing.T) {
	needWrk(t)
	bed := bedtest.New(t)
	backend, err := bed.Bed.Nginx(t.Context(), brokenBackend)
	bedtest.Check(t, err)
	s := &servers{bed: bed.Bed, backend: backend.Addr()}
	bedtest.Check(t, s.startPlain(t.Context()))
	script, err := writeScript(t.TempDir())
	bedtest.Check(t, err)
	for _, tt := range []struct {
		name         string
		first, count int64
		want         answer
		err          string // a part of it; "" for none
	}{
		{"200", 1000, 1000, passed, ""},
		{"404", 5000, 1000, refused, ""},
		{"200 for 404", 1000, 1000, refused, "the answer is {status:200 verdict:}, not {status:404 verdict:}"},
		{"404 for 200", 5000, 1000, passed, "the answer is {status:404 verdict:}, not {status:200 verdict:}"},
		{"no verdict", 5000, 1000, absent, "not {status:404 verdict:absent}"},
		// What a look at the first answer does not show: every second one is wrong.
		{"some 404 for 200", 4999, 2, passed, "answers have a status of 400 or more, but 200 is due"},
		{"some 200 for 404", 8999, 2, refused, "answers have a status below 400, but 404 is due"},
		{"some 500 for 404", 5999, 2, refused, "answers with a status that is not due"},
	} {
		sec := section{load: load{method: http.MethodGet, first: tt.first, count: tt.count}}
		for proxy, g := range map[string]*gateway{"envoy": &s.envoy, "nginx": &s.nginx} {
			_, err := sec.round(t.Context(), contender{on: g, want: tt.want}, script, settings{}, 1, leastLength)
			checkError(t, proxy+": "+tt.name, err, tt.err)
		}
	}
}

func checkError(t *testing.T, name string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: error %v, want one with %q", name, err, want)
	}
}

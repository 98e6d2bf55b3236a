package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const wrkOutput = `Running 2s test @ http://127.0.0.1:8000
  1 threads and 64 connections
Requests/sec:  41234.56
{"requests":1000,"micros":25000,"over399":%,"connect":0,"read":0,"write":0,"timeout":0,"p50":120,"p99":4500}
`

func TestParseLoad(t *testing.T) {
	good := strings.Replace(wrkOutput, "%", "0", 1)
	for _, tt := range []struct {
		name, out string
		status    int
		err       string // a part of it; "" for none
	}{
		{"all passed", good, 200, ""},
		{"all refused", strings.Replace(wrkOutput, "%", "1000", 1), 404, ""},
		{"one refused", strings.Replace(wrkOutput, "%", "1", 1), 200, "1 of 1000 answers have a status of 400 or more, but 200 is due"},
		{"one passed", strings.Replace(wrkOutput, "%", "999", 1), 404, "1 of 1000 answers have a status below 400, but 404 is due"},
		{"read errors", strings.Replace(good, `"read":0`, `"read":3`, 1), 200, "0 at connecting, 3 at reading, 0 at writing, 0 too late"},
		{"too late", strings.Replace(good, `"timeout":0`, `"timeout":2`, 1), 200, "2 too late"},
		{"no answers", strings.Replace(good, "1000", "0", 1), 200, "no request was answered"},
		{"no line", "Running\n", 200, "load.lua's line is not in: Running"},
		{"half a line", good[:len(good)-10], 200, "reading wrk's summary: "},
	} {
		_, err := parseLoad(tt.out, tt.status)
		checkError(t, tt.name, err, tt.err)
	}
	got, err := parseLoad(good, 200)
	if diff := cmp.Diff(loaded{Requests: 1000, Micros: 25000, P50: 120, P99: 4500}, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// TestNobodyListens has wrk say so.
func TestNobodyListens(t *testing.T) {
	needWrk(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	script, err := writeScript(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, err = load{method: http.MethodGet, first: 1, count: 1}.run(t.Context(), script, url, leastLength, 200)
	checkError(t, "wrk", err, "running wrk: exit status 1: unable to connect")
}

func TestRunFor(t *testing.T) {
	bedtest.NeedProcesses(t)
	// It ends in order, and late, if it is interrupted when it expects that.
	const orderly = `trap 'echo told; exit 0' INT; echo begun >&2; while :; do sleep 0.01; done`
	out, err := runFor(t.Context(), exec.Command("sh", "-c", orderly), leastLength)
	if out != "told\n" || err != nil {
		t.Errorf("it wrote %q, error %v", out, err)
	}
	began := time.Now()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	time.AfterFunc(leastLength, func() { cancel(stopped) })
	_, err = runFor(ctx, exec.CommandContext(ctx, "sleep", "60"), time.Minute)
	if !errors.Is(err, stopped) || time.Since(began) > 30*time.Second {
		t.Errorf("after %v: error %v, want that of the context", time.Since(began), err)
	}
	_, err = runFor(t.Context(), exec.Command("sh", "-c", "echo why; exit 3"), time.Minute)
	checkError(t, "a failure", err, "exit status 3: why")
}

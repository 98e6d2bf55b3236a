package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

const verdictHeader = "x-ordergate-verdict"

// lookupLoad is 64 clients that each wait for their answer.
var lookupLoad = []string{"--h1", "-c", strconv.Itoa(connections)}

// lookupIDs is how many orders a round asks for, in turns.
const lookupIDs = 1000

// clientHeaders are those of a browser's script, as in checkRequest.
var clientHeaders = []string{
	"accept: application/json",
	"accept-encoding: gzip, deflate, br",
	"accept-language: en-GB,en;q=0.9",
	"authorization: Bearer 4f1c2a6e0b9d4c1f8a7e5d3b2c1a0f9e",
	"cookie: session=8c6b1f0de2a94d7f; theme=dark",
	"user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
}

const lookupNote = `GET /orders/{id} through Envoy with one worker and the configuration of
examples/envoy, HTTP/1.1, 64 connections, 1000 IDs in turns. The backend is a Go
net/http server that answers at once. The no-op refuses with a 404 where it is
compared with a refusal, so that neither reaches the backend.`

// lookupSection compares lookups through Envoy.
func lookupSection(s *servers) (*section, error) {
	sec := &section{
		title: "Lookups through Envoy", note: lookupNote, share: lookupShare,
		metrics: []benchmark.Metric{rate, p50, p99, envoyCPU, sidecarCPU, redisCPU},
		ratios: []ratio{
			{rate, 0, "requests/s : no-op"},
			{p50, 0, "p50 : no-op"},
			{envoyCPU, 0, "Envoy CPU : no-op"},
			{sidecarCPU, 0, "sidecar CPU : no-op"},
		},
	}
	const passes, refuses = "no-op, passes", "no-op, refuses"
	for _, c := range []struct {
		name  string
		bases []string
		on    *sidecar
		first int64
		want  httpWant
	}{
		{passes, nil, s.noop, 1, httpWant{200, ""}},
		{"ordergate, may exist", []string{passes}, s.window, 1, httpWant{200, ""}},
		{refuses, nil, s.noopRefuses, firstAbsent, httpWant{404, ""}},
		{"ordergate, absent, with a window", []string{refuses}, s.window, firstAbsent, httpWant{404, "absent"}},
		{"ordergate, absent, no window", []string{refuses}, s.windowless, firstAbsent, httpWant{404, "absent"}},
	} {
		job := load{
			uris: filepath.Join(s.dir, fmt.Sprintf("lookups-%d.txt", len(sec.contenders))),
			args: lookupLoad, headers: clientHeaders,
			log: filepath.Join(s.dir, "h2load.log"),
		}
		if err := writeURIs(job.uris, c.on.url, c.first, lookupIDs, ""); err != nil {
			return nil, err
		}
		path := orderPath(c.first)
		round := func(ctx context.Context, _, requests int) (benchmark.Sample, error) {
			if err := fetch(ctx, http.MethodGet, c.on.url+path, c.want); err != nil {
				return nil, err
			}
			return throughEnvoy(ctx, c.on, job, requests, c.want.status)
		}
		sec.contenders = append(sec.contenders, contender{c.name, c.bases, round})
	}
	return sec, nil
}

// throughEnvoy measures one round of a job; every answer must have the status.
func throughEnvoy(ctx context.Context, on *sidecar, job load, requests, status int) (benchmark.Sample, error) {
	job.requests = requests
	got := benchmark.Sample{}
	err := metered(ctx, got, requests, on.meters(), func() error {
		l, err := job.run(ctx)
		if err != nil {
			return err
		}
		got[rate], got[p50], got[p99] = l.rate, l.p50, l.p99
		if all := fmt.Sprintf("%d %dxx", requests, status/100); !strings.Contains(", "+l.statuses, ", "+all) {
			return fmt.Errorf("the answers are %s, but %s were due", l.statuses, all)
		}
		return nil
	})
	return got, errors.Join(err, os.Remove(job.log))
}

// writeURIs writes a file for h2load with count orders from the first one on.
func writeURIs(path, url string, first int64, count int, suffix string) error {
	var lines strings.Builder
	for i := range int64(count) {
		fmt.Fprintln(&lines, url+orderPath(first+i)+suffix)
	}
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		return fmt.Errorf("writing URLs for h2load: %w", err)
	}
	return nil
}

// httpWant is the answer to a request through Envoy that makes its timing worth
// anything.
type httpWant struct {
	status  int
	verdict string // of the x-ordergate-verdict header; "" when there is none
}

// fetch makes one request. It is an error when the answer is another.
func fetch(ctx context.Context, method, url string, w httpWant) (err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return fmt.Errorf("asking through envoy: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking through envoy: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("asking through envoy: %w", err)
	}
	if got := (httpWant{resp.StatusCode, resp.Header.Get(verdictHeader)}); got != w {
		return fmt.Errorf("%s %s: the answer is %+v, not %+v", method, url, got, w)
	}
	return nil
}

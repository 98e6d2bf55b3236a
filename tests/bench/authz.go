package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// authzLoad is what Envoy with two busy workers looks like to the sidecar.
var authzLoad = []string{"-c", "2", "-m", "100"}

const authzNote = `The sidecar alone, without Envoy: Check over TCP, 2 connections with 100 streams
each. Every check is the same one, so the filter's memory is in the CPU's cache.
The no-op is an ordinary server with the generated code; the floor is one that
answers with the same bytes without decoding the check. Both keep as much memory
alive as ordergate, since a smaller heap is collected more often.`

// Names of rows that others are compared with.
const (
	plainNoop  = "no-op"
	workerNoop = "no-op, as many workers"
	floor      = "floor, as many workers"
)

// authzSection compares checks.
func authzSection(s *servers) (*section, error) {
	sec := &section{
		title: "The gRPC port alone", note: authzNote, share: 1,
		metrics: []benchmark.Metric{rate, sidecarCPU, redisCPU},
		ratios: []ratio{
			{rate, 0, "requests/s : no-op"},
			{sidecarCPU, 0, "CPU : no-op"},
			{sidecarCPU, 1, "CPU : no-op, workers"},
			{sidecarCPU, 2, "CPU : floor"},
		},
	}
	all := []string{plainNoop, workerNoop, floor}
	absent, exists, unruled := orderPath(firstAbsent), orderPath(1), "/healthz"
	for _, c := range []struct {
		name  string
		bases []string
		on    *sidecar
		path  string
		want  want
	}{
		{plainNoop, nil, s.noop, exists, want{}},
		{workerNoop, nil, s.noopWorkers, exists, want{}},
		{floor, nil, s.noopRaw, exists, want{}},
		{"ordergate, absent, with a window", all, s.window, absent, want{true, "absent"}},
		{"ordergate, absent, no window", all, s.windowless, absent, want{true, "absent"}},
		{"ordergate, may exist", all, s.window, exists, want{false, "maybe"}},
		{"ordergate, under no rule", all, s.window, unruled, want{}},
	} {
		round, err := authzRound(s, c.on, c.path, c.want)
		if err != nil {
			return nil, err
		}
		sec.contenders = append(sec.contenders, contender{c.name, c.bases, round})
	}
	return sec, nil
}

// authzRound makes the function that measures one contender.
func authzRound(s *servers, on *sidecar, path string, w want) (func(context.Context, int, int) (benchmark.Sample, error), error) {
	req := checkRequest("GET", path)
	body, err := frame(req)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, fmt.Sprintf("check-%d.bin", len(path)))
	if err := os.WriteFile(file, body, 0o600); err != nil {
		return nil, fmt.Errorf("writing a request for h2load: %w", err)
	}
	job := load{
		url: "http://" + on.authz + checkMethod, body: file, args: authzLoad,
		headers: []string{"content-type: application/grpc", "te: trailers"},
	}
	return func(ctx context.Context, _, requests int) (benchmark.Sample, error) {
		size, err := ask(ctx, on.authz, req, w)
		if err != nil {
			return nil, err
		}
		job := job
		job.requests = requests
		got := benchmark.Sample{}
		err = metered(ctx, got, requests, on.meters(), func() error {
			l, err := job.run(ctx)
			got[rate] = l.rate
			// To h2load all of gRPC's answers are a 200. Their length tells.
			if err == nil && l.dataBytes != size*int64(requests) {
				err = fmt.Errorf("the answers to %d checks have %d bytes, not %d each: some were others", requests, l.dataBytes, size)
			}
			return err
		})
		return got, err
	}, nil
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// floodLoad is a flood of made-up orders: as many requests under way as connections.
var floodLoad = []string{"-c", "256", "-m", "1"}

// floodShare is less than that of the other section on the same port: 256 connections
// have to be opened first.
const floodShare = 2

const floodNote = `The same port, 256 connections with a check each, all of them for an order that does
not exist. Reads are those of the change log; the round trip is that of such a read
while the flood is on, as another client sees it.`

var (
	readRate  = benchmark.Metric{Name: "log reads/s", Format: "%.0f"}
	roundTrip = benchmark.Metric{Name: "round trip ms", Format: "%.2f"}
)

// floodSection compares refusals within a window with those of an ordergate that has
// none.
func floodSection(s *servers) (*section, error) {
	sec := &section{
		title: "A flood of absent orders", note: floodNote, share: floodShare,
		metrics: []benchmark.Metric{rate, p50, p99, sidecarCPU, redisCPU, readRate, roundTrip},
		ratios:  []ratio{{rate, 0, "requests/s : no window"}, {sidecarCPU, 0, "CPU : no window"}, {p50, 0, "p50 : no window"}},
	}
	const none = "no window"
	for _, c := range []struct {
		name  string
		bases []string
		on    *sidecar
	}{
		{none, nil, s.windowless},
		{"with a window", []string{none}, s.window},
		{"an order that exists, with a window", []string{none}, s.window},
		{"an order that exists, no window", []string{none}, s.windowless},
	} {
		path, w := orderPath(firstAbsent), want{true, "absent"}
		if c.name[0] == 'a' {
			path, w = orderPath(1), want{false, "maybe"}
		}
		round, err := floodRound(s, c.on, path, w)
		if err != nil {
			return nil, err
		}
		sec.contenders = append(sec.contenders, contender{c.name, c.bases, round})
	}
	return sec, nil
}

func floodRound(s *servers, on *sidecar, path string, w want) (func(context.Context, int, int) (benchmark.Sample, error), error) {
	req := checkRequest("GET", path)
	body, err := frame(req)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, fmt.Sprintf("flood-%d.bin", len(path)))
	if err := os.WriteFile(file, body, 0o600); err != nil {
		return nil, fmt.Errorf("writing a request for h2load: %w", err)
	}
	job := load{
		url: "http://" + on.authz + checkMethod, body: file, args: floodLoad, log: filepath.Join(s.dir, "flood.log"),
		headers: []string{"content-type: application/grpc", "te: trailers"},
	}
	return func(ctx context.Context, _, requests int) (benchmark.Sample, error) {
		if _, err := ask(ctx, on.authz, req, w); err != nil {
			return nil, err
		}
		before, err := on.scriptsRun(ctx)
		if err != nil {
			return nil, err
		}
		job := job
		job.requests = requests
		got, began := benchmark.Sample{}, time.Now()
		trips := on.roundTrips(ctx)
		err = metered(ctx, got, requests, on.meters(), func() error {
			if err := os.RemoveAll(job.log); err != nil {
				return err
			}
			l, err := job.run(ctx)
			got[rate], got[p50], got[p99] = l.rate, l.p50, l.p99
			return err
		})
		got[roundTrip] = trips()
		if err != nil {
			return nil, err
		}
		after, err := on.scriptsRun(ctx)
		got[readRate] = (after - before) / time.Since(began).Seconds()
		return got, err
	}, nil
}

// roundTrips measures round trips to Redis until the returned function is called, which
// returns their median in ms. They are as rare as not to be a load of their own.
func (s *sidecar) roundTrips(ctx context.Context) (stop func() float64) {
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan float64, 1)
	go func() {
		var took []float64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				if len(took) == 0 {
					took = []float64{0}
				}
				result <- benchmark.Median(took)
				return
			case <-tick.C:
			}
			began := time.Now()
			if s.redis.Ping(ctx).Err() == nil {
				took = append(took, time.Since(began).Seconds()*1e3)
			}
		}
	}()
	return func() float64 {
		cancel()
		return <-result
	}
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// settleLoad is one client with 64 requests under way: several would each begin
// with the same orders.
var settleLoad = []string{"-c", "1", "-m", strconv.Itoa(connections)}

const settleNote = `POST /orders/{id}/settle of distinct orders through Envoy, as before, but over one
HTTP/2 connection with 64 streams. Both filters are on the way: ext_authz, which
looks the order up, and ext_proc from the request's headers to the last byte of
the answer. The no-op answers the same messages without a lock. A Redis script is
one round trip; the follower of the change log adds ten a second.`

// settleSection compares brackets.
func settleSection(s *servers) (*section, error) {
	sec := &section{
		title: "Settlements through Envoy", note: settleNote, share: settleShare,
		metrics: []benchmark.Metric{rate, p50, p99, envoyCPU, sidecarCPU, redisCPU, scripts},
		ratios: []ratio{
			{rate, 0, "requests/s : no-op"},
			{p50, 0, "p50 : no-op"},
			{envoyCPU, 0, "Envoy CPU : no-op"},
			{sidecarCPU, 0, "sidecar CPU : no-op"},
		},
	}
	body := filepath.Join(s.dir, "settle.json")
	if err := os.WriteFile(body, []byte(`{"amount":"101"}`), 0o600); err != nil {
		return nil, fmt.Errorf("writing a request for h2load: %w", err)
	}
	const noLock = "no-op, no lock"
	for _, c := range []struct {
		name  string
		bases []string
		on    *sidecar
	}{
		{noLock, nil, s.noop},
		{"ordergate, a lock each", []string{noLock}, s.window},
	} {
		next := int64(1) // each order is settled once in all rounds
		round := func(ctx context.Context, _, requests int) (benchmark.Sample, error) {
			// Settled once more beforehand: a lock that was not given up would show.
			for range 2 {
				url := c.on.url + orderPath(next) + "/settle"
				if err := fetch(ctx, http.MethodPost, url, httpWant{200, ""}); err != nil {
					return nil, err
				}
			}
			job := load{
				uris: filepath.Join(s.dir, "settlements.txt"), args: settleLoad,
				headers: append(clientHeaders[:len(clientHeaders):len(clientHeaders)], "content-type: application/json"),
				body:    body, log: filepath.Join(s.dir, "h2load.log"),
			}
			if err := writeURIs(job.uris, c.on.url, next+1, requests, "/settle"); err != nil {
				return nil, err
			}
			next += 1 + int64(requests)
			return throughEnvoy(ctx, c.on, job, requests, http.StatusOK)
		}
		sec.contenders = append(sec.contenders, contender{c.name, c.bases, round})
	}
	return sec, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

const verdictHeader = "x-ordergate-verdict"

// gateway is a proxy in front of the backend, with all that it asks.
type gateway struct {
	url     string
	proxy   *testbed.Process
	sidecar *testbed.Process // nil without one
	redis   *testbed.Redis   // nil without one
	client  *redis.Client    // of redis

	// wrong counts the answers so far that nobody should get: wrk does not tell a 404
	// from a 500. Envoy's are those from 500 on.
	wrong func(context.Context) (int64, error)
	// lock takes the lock of an order as another would, unlock gives it back; nil if
	// it takes no locks. While it is taken, the answer is busy.
	lock, unlock func(ctx context.Context, id int64) error
	busy         answer
}

func orderPath(id int64) string { return fmt.Sprintf("/orders/%d", id) }

// answer is what makes the timing of a request worth anything.
type answer struct {
	status  int
	verdict string // of the header x-ordergate-verdict; "" when there is none
}

// ask makes one request. It is an error when the answer is another.
func (g *gateway) ask(ctx context.Context, l load, id int64, want answer) (err error) {
	url := g.url + orderPath(id) + l.suffix
	req, err := http.NewRequestWithContext(ctx, l.method, url, strings.NewReader(l.body))
	if err != nil {
		return fmt.Errorf("asking through a gateway: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking through a gateway: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("asking through a gateway: %w", err)
	}
	if got := (answer{resp.StatusCode, resp.Header.Get(verdictHeader)}); got != want {
		return fmt.Errorf("%s %s: the answer is %+v, not %+v", l.method, url, got, want)
	}
	return nil
}

// usage is the CPU time in µs of each part.
func (g *gateway) usage() (benchmark.Sample, error) {
	parts := map[benchmark.Metric]*testbed.Process{proxyCPU: g.proxy, sidecarCPU: g.sidecar}
	if g.redis != nil {
		parts[redisCPU] = g.redis.Process
	}
	got := benchmark.Sample{}
	for m, p := range parts {
		if p == nil {
			continue
		}
		used, err := benchmark.ProcessCPU(p.PID())
		if err != nil {
			return nil, err
		}
		got[m] = benchmark.Micros(used)
		got[allCPU] += got[m]
	}
	return got, nil
}

// metered does something, and returns by how much the CPU times grew.
func (g *gateway) metered(do func() error) (benchmark.Sample, error) {
	before, err := g.usage()
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	after, err := g.usage()
	for m := range after {
		after[m] -= before[m]
	}
	return after, err
}

// right does something, and fails if answers that nobody should get came of it.
func (g *gateway) right(ctx context.Context, do func() error) error {
	before, err := g.wrong(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := g.wrong(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("there were %d answers with a status that is not due", after-before)
	}
	return err
}

// close ends what does not belong to the bed.
func (g *gateway) close() {
	if g.client != nil {
		_ = g.client.Close()
	}
}

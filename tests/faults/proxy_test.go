package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between one worker and one Redis.
type proxy struct {
	t *testing.T
	p *toxiproxy.Proxy
}

// newProxy starts one on a free port.
func newProxy(t *testing.T, upstream string) *proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &proxy{t: t, p: p}
}

func (p *proxy) addr() string { return p.p.Listen }

// both does the same to what goes to Redis and to what comes back.
func (p *proxy) both(kind string, attributes map[string]any) {
	for _, stream := range []string{"upstream", "downstream"} {
		text, err := json.Marshal(map[string]any{"type": kind, "stream": stream, "attributes": attributes})
		if err == nil {
			_, err = p.p.Toxics.AddToxicJson(bytes.NewReader(text))
		}
		if err != nil {
			p.t.Errorf("adding toxic %s: %v", kind, err)
		}
	}
}

// latency delays each packet by ms, give or take half of it.
func (p *proxy) latency(ms int) { p.both("latency", map[string]any{"latency": ms, "jitter": ms / 2}) }

// bandwidth lets so many kilobytes a second through.
func (p *proxy) bandwidth(kb int) { p.both("bandwidth", map[string]any{"rate": kb}) }

// swallow drops every packet; the connections stay open.
func (p *proxy) swallow() { p.both("timeout", map[string]any{"timeout": 0}) }

// cut breaks the connections, and those that come before heal.
func (p *proxy) cut() { p.both("timeout", map[string]any{"timeout": 1}) }

// heal ends all that. Connections whose packets were swallowed break.
func (p *proxy) heal() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p.p.Toxics.ResetToxics(ctx)
}

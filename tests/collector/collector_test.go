// Package collector sends the traces of ordergate to the receiver of OpenTelemetry's own Collector. It is
// a module of its own, since the Collector takes long to compile, and runs with make soak.
package collector

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const config = `
listen: {authz: "", proc: "", http: "127.0.0.1:0", admin: "127.0.0.1:0"}
redis: {mode: embedded}
filters: {orders: {}}
rules:
  - {name: look, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}
`

// freeAddr returns an address that was free just now.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bedtest.Check(t, err)
	bedtest.Check(t, l.Close())
	return l.Addr().String()
}

// receive starts the Collector's receiver, which returns what arrives at both addresses.
func receive(t *testing.T, grpc, http string) *consumertest.TracesSink {
	t.Helper()
	factory := otlpreceiver.NewFactory()
	c := factory.CreateDefaultConfig()
	bedtest.Check(t, confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": grpc}, "http": map[string]any{"endpoint": http},
	}}).Unmarshal(c))
	sink := new(consumertest.TracesSink)
	receiver, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), c, sink)
	bedtest.Check(t, err)
	bedtest.Check(t, receiver.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { bedtest.Check(t, receiver.Shutdown(t.Context())) })
	return sink
}

// TestCollector has a span of each protocol arrive, with its parent and the process that it is from.
func TestCollector(t *testing.T) {
	bed := bedtest.New(t)
	grpcAddr, httpAddr := freeAddr(t), freeAddr(t)
	sink := receive(t, grpcAddr, httpAddr)
	for protocol, addr := range map[string]string{"grpc": grpcAddr, "http/protobuf": httpAddr} {
		sink.Reset()
		gate := bed.Gate(bed.Build("./cmd/sidecar", false), config,
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+addr, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+bed.GateAddr(gate, "http")+"/check/envoy/orders/77", nil)
		bedtest.Check(t, err)
		req.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		resp, err := http.DefaultClient.Do(req)
		bedtest.Check(t, err)
		bedtest.Check(t, resp.Body.Close())
		bedtest.Check(t, gate.Stop()) // sends what is left
		if sink.SpanCount() != 1 {
			t.Fatalf("%s: %d spans, want 1", protocol, sink.SpanCount())
		}
		from := sink.AllTraces()[0].ResourceSpans().At(0)
		span := from.ScopeSpans().At(0).Spans().At(0)
		about := from.Resource().Attributes().AsRaw()
		got := fmt.Sprint(span.Name(), " ", span.TraceID(), " ", span.ParentSpanID(), " ", span.Kind() == ptrace.SpanKindServer, " ",
			about["service.name"], " ", about["deployment.environment.name"], " ", span.Attributes().AsRaw()["ordergate.rule"])
		const want = "ordergate.check 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 true ordergate test look"
		if got != want {
			t.Errorf("%s: got %s, want %s", protocol, got, want)
		}
	}
}

package tests

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// withMutualTLS has ordergate's listeners speak TLS, with the certificates given.
func withMutualTLS(certs *testbed.Certificates) func(yaml string) string {
	return func(yaml string) string {
		return bedtest.Replace(yaml, "\nlisten:\n", "\nlisten:\n  http: 127.0.0.1:0\n  tls: {cert: "+certs.ServerCert+", key: "+certs.ServerKey+", ca: "+certs.CA+"}\n")
	}
}

// clientTLS has Envoy's clusters of ordergate speak TLS, and show a certificate.
func clientTLS(ca, cert, key string) func(yaml string) string {
	socket := `
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          tls_certificates: [{ certificate_chain: { filename: ` + cert + ` }, private_key: { filename: ` + key + ` } }]
          validation_context: { trusted_ca: { filename: ` + ca + ` } }
`
	return func(yaml string) string {
		return regexp.MustCompile(`\n  - name: ordergate-(authz|proc)\n    type: STATIC\n`).ReplaceAllStringFunc(yaml, func(head string) string {
			return strings.TrimSuffix(head, "\n") + socket
		})
	}
}

// TestMutualTLS has one Envoy with a certificate, and others without one or with that of
// another authority, before the same ordergate.
func TestMutualTLS(t *testing.T) {
	needsSidecar(t, "inside Envoy there is nothing to connect to")
	t.Parallel()
	b := newBackend(t)
	bed := bedtest.New(t)
	certs := bed.Certificates()
	others, err := testbed.NewCertificates(t.TempDir())
	must(t, err)
	s := &stack{Bed: bed, t: t, server: bed.Redis()}
	s.start(settings{backend: b.addr(), orders: 10, gate: withMutualTLS(certs), envoy: clientTLS(certs.CA, certs.ClientCert, certs.ClientKey)})
	s.must("GET", "/orders/11", "").want(t, 404, "absent")
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")

	for name, change := range map[string]func(string) string{
		"without TLS":            nil,
		"of another authority":   clientTLS(certs.CA, others.ClientCert, others.ClientKey),
		"that trusts another CA": clientTLS(others.CA, certs.ClientCert, certs.ClientKey),
	} {
		config := check(t)(s.EnvoyExample(s.GateAddr(s.gate, "authz"), s.GateAddr(s.gate, "proc"), b.addr()))
		if change != nil {
			config = change(config)
		}
		stranger := *s
		stranger.url = "http://" + s.ListenerAddr(s.Envoy(config), "orders")
		before := b.arrived("/orders/6/settle")
		stranger.must("GET", "/orders/11", "").want(t, 200, "") // it has no verdict
		stranger.must("POST", "/orders/6/settle", "").want(t, 503, "")
		if b.arrived("/orders/6/settle") != before {
			t.Errorf("an Envoy %s has settled", name)
		}
	}
}

// TestMutualTLSListeners talks to each listener, as the right client and as others.
func TestMutualTLSListeners(t *testing.T) {
	needsSidecar(t, "inside Envoy there is nothing to connect to")
	t.Parallel()
	bed := bedtest.New(t)
	certs := bed.Certificates()
	others, err := testbed.NewCertificates(t.TempDir())
	must(t, err)
	s := &stack{Bed: bed, t: t, server: bed.Redis()}
	s.start(settings{backend: newBackend(t).addr(), orders: 10, gate: withMutualTLS(certs), envoy: clientTLS(certs.CA, certs.ClientCert, certs.ClientKey)})

	right, err := certs.ClientConfig()
	must(t, err)
	stranger := right.Clone()
	pair, err := tls.LoadX509KeyPair(others.ClientCert, others.ClientKey)
	must(t, err)
	stranger.Certificates = []tls.Certificate{pair}
	nameless := right.Clone()
	nameless.Certificates = nil
	old := right.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	for name, c := range map[string]struct {
		tls    *tls.Config
		served bool
	}{"right": {right, true}, "of another authority": {stranger, false}, "without a certificate": {nameless, false}, "of an old TLS": {old, false}, "without TLS": {nil, false}} {
		for _, listener := range []string{"authz", "proc"} {
			if err := grpcHealth(t, s.GateAddr(s.gate, listener), c.tls); (err == nil) != c.served {
				t.Errorf("%s, a client %s: %v", listener, name, err)
			}
		}
		if status := overHTTP(t, s.GateAddr(s.gate, "http"), c.tls); (status == 404) != c.served {
			t.Errorf("http, a client %s: %d", name, status)
		}
	}
}

// grpcHealth asks a server of gRPC for its health.
func grpcHealth(t *testing.T, addr string, config *tls.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var how credentials.TransportCredentials = insecure.NewCredentials()
	if config != nil {
		how = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(how))
	must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// overHTTP returns the status of a sub-request for an order that does not exist, 0 without
// an answer.
func overHTTP(t *testing.T, addr string, config *tls.Config) int {
	t.Helper()
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+addr+"/check/envoy/orders/11", nil)
	must(t, err)
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestSockets has Envoy reach ordergate by unix sockets. What a killed ordergate leaves is
// taken over, and what a live one has is not.
func TestSockets(t *testing.T) {
	needsSidecar(t, "inside Envoy there is nothing to connect to")
	t.Parallel()
	dir, err := os.MkdirTemp("", "og") // a socket's path has little room
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	authz, proc := filepath.Join(dir, "authz"), filepath.Join(dir, "proc")
	sockets := edit(t, "authz: 127.0.0.1:0", "authz: unix:"+authz, "proc:  127.0.0.1:0", "proc: unix:"+proc, "\nlisten:\n", "\nlisten:\n  socket_mode: \"0640\"\n")
	s := newStack(t, settings{backend: newBackend(t).addr(), orders: 10, gate: sockets, envoy: func(yaml string) string {
		return regexp.MustCompile(`socket_address: \{ address: 127\.0\.0\.1, port_value: (/[^ ]+) \}`).ReplaceAllString(yaml, "pipe: { path: $1 }")
	}})
	serves := func(order string) {
		t.Helper()
		s.must("GET", "/orders/11", "").want(t, 404, "absent")
		s.must("POST", "/orders/"+order+"/settle", "").want(t, 200, "")
	}
	serves("5")
	for _, path := range []string{authz, proc} {
		if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o640 {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
	}
	text, err := os.ReadFile(s.gate.ConfigFile())
	must(t, err)
	second, err := s.GateUnready(t.Context(), s.Build("./cmd/sidecar", false), string(text))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := second.Wait(ctx); err == nil || !strings.Contains(second.Tail(), "listen.authz: ") || !strings.Contains(second.Tail(), "a process listens at "+authz) {
		t.Errorf("the second ordergate ended with %v: %s", err, second.Tail())
	}
	serves("6")
	s.gate.Kill()
	must(t, s.gate.Restart(t.Context()))
	bedtest.Eventually(t, "Envoy has connected again", func() bool { return s.must("GET", "/orders/11", "").status == 404 })
	serves("7") // the others may be locked yet
}

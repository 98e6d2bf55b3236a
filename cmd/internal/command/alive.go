package command

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// alive returns an error unless each server answers at its address: a gRPC server a health check,
// the others a request for /healthz, with any status. Behind TLS it only connects, since this process
// has no certificate of a client.
func (f *adapters) alive(ctx context.Context) error {
	var asked errgroup.Group
	for _, s := range f.servers {
		asked.Go(func() error {
			if err := s.ask(ctx); err != nil {
				return fmt.Errorf("listen.%s does not answer: %w", s.name, err)
			}
			return nil
		})
	}
	return asked.Wait()
}

// ask is alive for one server.
func (s server) ask(ctx context.Context) error {
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, s.listener.Addr().Network(), s.listener.Addr().String())
	}
	switch {
	case s.secured:
		conn, err := dial(ctx)
		if err == nil {
			err = conn.Close()
		}
		return err
	case s.protocol == "h2":
		conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/healthz", nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

package extauthz

import (
	"fmt"
	"log/slog"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/ordergate/ordergate/internal/decisionlog"
)

// browser are the headers that one sends.
var browser = map[string]string{
	":path": "/orders/43", "accept": "application/json", "accept-encoding": "gzip, deflate, br", "cookie": "session=0123456789abcdef0123456789abcdef",
	"user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36", "x-forwarded-for": "192.0.2.1",
	"x-forwarded-proto": "https", "x-request-id": "01234567-89ab-cdef-0123-456789abcdef", "referer": "https://shop.example/orders", "sec-fetch-site": "same-origin",
}

// BenchmarkCheck is everything between gRPC handing a message over and taking the
// reply.
func BenchmarkCheck(b *testing.B) {
	for name, headers := range map[string]map[string]string{
		"ordinary": {"a": "b", ":path": "/orders/43", "user-agent": "curl"},
		"browser":  browser,
		"forged":   {"a": "b", ":path": "/orders/42", "user-agent": "curl", "x-ordergate-lease-lost": "true"},
	} {
		b.Run(name, func(b *testing.B) { benchmarkCheck(b, newServer(b), headers) })
	}
}

// BenchmarkDescribed is what an ordinary check pays for metadata, and for the decision log.
func BenchmarkDescribed(b *testing.B) {
	for _, sample := range []float64{-1, 0, 0.01, 1} { // -1: neither
		b.Run(fmt.Sprint(sample), func(b *testing.B) {
			s := newServer(b)
			g := s.current.Load().gate
			if sample < 0 {
				g.Undescribed()
			}
			if sample > 0 {
				log, err := decisionlog.Open(decisionlog.Options{To: "/dev/null", Sample: sample, IDs: decisionlog.Plain}, slog.New(slog.DiscardHandler))
				if err != nil {
					b.Fatal(err)
				}
				defer log.Close()
				g.LogDecisionsTo(log.Select(make([]string, len(g.Policies()))))
			}
			benchmarkCheck(b, s, browser)
		})
	}
}

func benchmarkCheck(b *testing.B, s *Server, headers map[string]string) {
	c := codec{}
	encoded, err := proto.Marshal(checkRequest(headers[":path"], headers))
	if err != nil {
		b.Fatal(err)
	}
	data := mem.BufferSlice{mem.SliceBuffer(encoded)}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		check := s.checks.Get().(*check)
		if err := c.Unmarshal(data, check); err != nil {
			b.Fatal(err)
		}
		reply, err := s.respond(ctx, check)
		if err != nil {
			b.Fatal(err)
		}
		sent, err := c.Marshal(reply)
		if err != nil {
			b.Fatal(err)
		}
		sent.Free()
		s.checks.Put(check)
	}
}

// BenchmarkMayForge is what an ordinary check pays for those with forged headers.
func BenchmarkMayForge(b *testing.B) {
	var c check
	encoded, err := proto.Marshal(checkRequest("/orders/43", browser))
	if err != nil {
		b.Fatal(err)
	}
	if err := c.decode(mem.BufferSlice{mem.SliceBuffer(encoded)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if c.mayForge() {
			b.Fatal("it forges nothing")
		}
	}
}

package extauthz

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// BenchmarkCheck is everything between gRPC handing a message over and taking the
// reply.
func BenchmarkCheck(b *testing.B) {
	s, c := newServer(b), codec{}
	encoded, err := proto.Marshal(checkRequest("/orders/43", map[string]string{"a": "b", ":path": "/orders/43", "user-agent": "curl"}))
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
		if _, err := c.Marshal(s.answer(ctx, check)); err != nil {
			b.Fatal(err)
		}
		s.checks.Put(check)
	}
}

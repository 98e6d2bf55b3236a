package extauthz

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec handles this package's types itself, and leaves all others (those of the health
// service) to gRPC's codec.
type codec struct{ others encoding.CodecV2 }

func newCodec() codec { return codec{others: encoding.GetCodecV2(proto.Name)} }

// Name implements encoding.CodecV2. The wire format is protobuf's.
func (codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2. A shared reply ignores Free.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*reply); ok {
		return r.encoded, nil
	}
	return c.others.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*check); ok {
		return r.decode(data)
	}
	return c.others.Unmarshal(data, v)
}

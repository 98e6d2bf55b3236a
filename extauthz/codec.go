package extauthz

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec passes our own types through by their own means and leaves all others
// (the health service's) to gRPC's.
type codec struct{ others encoding.CodecV2 }

func newCodec() codec { return codec{others: encoding.GetCodecV2(proto.Name)} }

// Name implements encoding.CodecV2. The wire format is protobuf's.
func (codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2. A reply is shared: its buffer is one that
// ignores being freed.
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

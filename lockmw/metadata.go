package lockmw

import (
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ordergate/ordergate/internal/gate"
)

// fieldDynamicMetadata is the number of that field of ProcessingResponse.
const fieldDynamicMetadata = 8

// describe returns a reply, which may be shared, with the metadata of its call, if there are any. Envoy
// takes them if its metadata_options name the namespace.
func describe(reply *extproc.ProcessingResponse, call *gate.Call) *extproc.ProcessingResponse {
	if m, ok := call.Metadata(); ok {
		return withMetadata(reply, &m)
	}
	return reply
}

// describeNews is describe for what has become known since, if there is anything. Envoy keeps the rest.
func describeNews(reply *extproc.ProcessingResponse, call *gate.Call) *extproc.ProcessingResponse {
	if m, ok := call.News(); ok {
		return withMetadata(reply, &m)
	}
	return reply
}

// withMetadata has them encoded in the message's unknown fields: as values of its type they cost more
// than the rest of a bracket's replies.
func withMetadata(reply *extproc.ProcessingResponse, m *gate.Metadata) *extproc.ProcessingResponse {
	described := &extproc.ProcessingResponse{Response: reply.GetResponse(), ModeOverride: reply.GetModeOverride()}
	size := m.NamespaceSize()
	b := protowire.AppendTag(make([]byte, 0, 1+protowire.SizeBytes(size)), fieldDynamicMetadata, protowire.BytesType)
	described.ProtoReflect().SetUnknown(m.AppendNamespace(protowire.AppendVarint(b, uint64(size))))
	return described
}

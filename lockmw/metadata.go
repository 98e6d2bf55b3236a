package lockmw

import (
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ordergate/ordergate/internal/gate"
)

// fieldDynamicMetadata is the number of that field of ProcessingResponse.
const fieldDynamicMetadata = 8

// withMetadata returns a reply, which may be shared, with metadata. Envoy takes them if its
// metadata_options name the namespace. They are encoded in the message's unknown fields: as values of its
// type they cost more than the rest of a bracket's replies.
func withMetadata(reply *extproc.ProcessingResponse, m *gate.Metadata) *extproc.ProcessingResponse {
	described := &extproc.ProcessingResponse{Response: reply.GetResponse(), ModeOverride: reply.GetModeOverride()}
	size := m.NamespaceSize()
	b := protowire.AppendTag(make([]byte, 0, 1+protowire.SizeBytes(size)), fieldDynamicMetadata, protowire.BytesType)
	described.ProtoReflect().SetUnknown(m.AppendNamespace(protowire.AppendVarint(b, uint64(size))))
	return described
}

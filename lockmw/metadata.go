package lockmw

import (
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ordergate/ordergate/internal/gate"
)

// describe returns a reply, which may be shared, with the metadata of its call, if there are any. Envoy
// takes them if its metadata_options name the namespace.
func describe(reply *extproc.ProcessingResponse, call *gate.Call) *extproc.ProcessingResponse {
	m, ok := call.Metadata()
	if !ok {
		return reply
	}
	fields := make(map[string]*structpb.Value, 8)
	for f := range m.Fields() {
		if f.Text != "" {
			fields[f.Name] = structpb.NewStringValue(f.Text)
		} else {
			fields[f.Name] = structpb.NewNumberValue(f.Number)
		}
	}
	return &extproc.ProcessingResponse{
		Response: reply.GetResponse(), ModeOverride: reply.GetModeOverride(),
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			gate.MetadataNamespace: structpb.NewStructValue(&structpb.Struct{Fields: fields}),
		}},
	}
}

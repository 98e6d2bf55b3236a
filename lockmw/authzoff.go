package lockmw

import (
	"context"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// isAuthzOff reports whether ext_authz is off for the request of a stream: see [gate.AuthzOff].
func isAuthzOff(ctx context.Context) bool {
	return slices.Equal(metadata.ValueFromIncomingContext(ctx, gate.AuthzOff[0]), gate.AuthzOff[1:])
}

// screen does for a request what ext_authz does where it is on. It leaves the verdict where ext_authz
// does, in the request's headers, and returns the answer to a request that is refused; nil: it goes on.
// It is kept out of the frame of Process, as proofOf is.
//
//go:noinline
func (s *Server) screen(ctx context.Context, a *gateReplies, req *order.Request, pass *forwarding) *extproc.ProcessingResponse {
	unseen := *req
	unseen.BodyState = order.BodyUnseen // as ext_authz sees it
	d := a.gate.Screen(ctx, unseen)
	if d.Refused {
		a.gate.ReportRefused(s.log, &d, req)
		reply := a.refusals.To(&d)
		if m, ok := a.gate.Metadata(&d); ok {
			reply = withMetadata(reply, &m)
		}
		return reply
	}
	a.gate.Screened(&d, req)
	headers, _ := req.Header.(headerMap)
	headers = slices.DeleteFunc(headers, func(h *corev3.HeaderValue) bool { return h.GetKey() == gate.HeaderVerdict })
	if d.Verdict != gate.VerdictNone {
		headers = append(headers, &corev3.HeaderValue{Key: gate.HeaderVerdict, Value: d.Verdict.String()})
	}
	req.Header, pass.screened, pass.verdict = headers, true, d.Verdict
	return nil
}

// guardedStream is a stream for whose request ext_authz is off. Its first message shows Envoy that
// ext_proc has the request.
type guardedStream struct {
	extproc.ExternalProcessor_ProcessServer
	shown bool
}

// Send implements extproc.ExternalProcessor_ProcessServer.
func (s *guardedStream) Send(reply *extproc.ProcessingResponse) error {
	if !s.shown {
		s.shown = true
		fields := append(slices.Clip(reply.ProtoReflect().GetUnknown()), seen()...) // metadata of the decision: see withMetadata
		reply = &extproc.ProcessingResponse{Response: reply.GetResponse(), ModeOverride: reply.GetModeOverride()}
		reply.ProtoReflect().SetUnknown(fields)
	}
	return s.ExternalProcessor_ProcessServer.Send(reply)
}

// seen is the encoded part of a message that ordergate.guard looks for.
var seen = sync.OnceValue(func() []byte {
	namespace := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{gate.GuardField: structpb.NewBoolValue(true)}})
	encoded, _ := proto.Marshal(&extproc.ProcessingResponse{ // it never fails
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{gate.GuardNamespace: namespace}},
	})
	return encoded
})

package extauthz

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/ordergate/ordergate/internal/gate"
)

// reply is an encoded CheckResponse. It is read-only and shared.
type reply struct{ encoded mem.BufferSlice }

// allow lets a request pass, with the verdict if there is one (only a rule that
// looks up has one), and without what only ordergate may send.
//
// The lease of a request that is settled stays: ext_proc, the next in the chain,
// judges it, and puts the one that it grants in its place. Of any other request
// nothing else would take it off.
//
// Forged are more headers to take off. Envoy sets before it removes, so a verdict
// among them is not replaced by ours: see [check.forged].
func allow(v gate.Verdict, settles bool, forged []string) (*reply, error) {
	ok := &authv3.OkHttpResponse{HeadersToRemove: append([]string{gate.HeaderKey, gate.HeaderFence}, forged...)}
	if !settles {
		ok.HeadersToRemove = append(ok.HeadersToRemove, gate.HeaderLease)
	}
	if v != gate.VerdictNone && !slices.Contains(forged, gate.HeaderVerdict) {
		ok.Headers = []*corev3.HeaderValueOption{set(gate.HeaderVerdict, v.String())}
	} else {
		ok.HeadersToRemove = append(ok.HeadersToRemove, gate.HeaderVerdict,
			// With these a client would name a path that no rule has seen.
			"x-original-url", "x-rewrite-url")
	}
	return encode(&authv3.CheckResponse{
		Status:       &status.Status{Code: int32(code.Code_OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok},
	})
}

// deny answers in the backend's stead. Envoy lets an ext_authz server name no
// response code details (they are ext_authz_denied): the verdict is in the
// header.
func deny(r gate.Reply, v gate.Verdict) (*reply, error) {
	headers := []*corev3.HeaderValueOption{set(gate.HeaderVerdict, v.String())}
	for _, h := range r.Headers() {
		headers = append(headers, set(h.Name, h.Value))
	}
	return encode(&authv3.CheckResponse{
		Status: &status.Status{Code: int32(code.Code_PERMISSION_DENIED)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.Status)},
			Headers: headers,
			Body:    r.Body,
		}},
	})
}

// set uses value, not raw_value: Envoy ignores the latter here.
func set(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// encode fails only for text that is not UTF-8.
func encode(r *authv3.CheckResponse) (*reply, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(r) // for golden tests
	if err != nil {
		return nil, fmt.Errorf("encoding a reply: %w", err)
	}
	return &reply{encoded: mem.BufferSlice{mem.SliceBuffer(encoded)}}, nil
}

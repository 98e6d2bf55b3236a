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

// allow lets a request pass and sets its verdict, if there is one (only a rule that looks
// up has one). It removes the headers that only ordergate may send.
//
// The lease of a settlement stays: ext_proc, the next filter in the chain, checks it, and
// replaces it by the lease that it grants. From any other request only this reply removes
// it.
//
// Forged are further headers to remove. Envoy sets headers before it removes others, so it
// does not set a verdict that is among them: see [check.forged].
func allow(v gate.Verdict, settles bool, forged []string) (*reply, error) {
	ok := &authv3.OkHttpResponse{HeadersToRemove: append([]string{gate.HeaderKey, gate.HeaderFence}, forged...)}
	if !settles {
		ok.HeadersToRemove = append(ok.HeadersToRemove, gate.HeaderLease)
	}
	if v != gate.VerdictNone && !slices.Contains(forged, gate.HeaderVerdict) {
		ok.Headers = []*corev3.HeaderValueOption{set(gate.HeaderVerdict, v.String())}
	} else {
		ok.HeadersToRemove = append(append(ok.HeadersToRemove, gate.HeaderVerdict), gate.URLOverrides[:]...)
	}
	return encode(&authv3.CheckResponse{
		Status:       &status.Status{Code: int32(code.Code_OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok},
	})
}

// withPath returns the reply with another path for the request: encoded messages that follow each
// other are one (https://protobuf.dev/programming-guides/encoding/#last-one-wins).
func (r *reply) withPath(path string) (*reply, error) {
	added, err := encode(&authv3.CheckResponse{HttpResponse: &authv3.CheckResponse_OkResponse{
		OkResponse: &authv3.OkHttpResponse{Headers: []*corev3.HeaderValueOption{set(":path", path)}},
	}})
	if err != nil {
		return nil, err
	}
	return &reply{encoded: append(slices.Clip(r.encoded), added.encoded...)}, nil
}

// deny answers in place of the backend. Envoy accepts no response code details from an
// ext_authz server (they are ext_authz_denied), so the verdict is in the header.
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

// set uses value, not raw_value: Envoy ignores raw_value here.
func set(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// encode returns an error only for text that is not UTF-8.
func encode(r *authv3.CheckResponse) (*reply, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(r) // for golden tests
	if err != nil {
		return nil, fmt.Errorf("encoding a reply: %w", err)
	}
	return &reply{encoded: mem.BufferSlice{mem.SliceBuffer(encoded)}}, nil
}

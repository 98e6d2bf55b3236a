package extauthz

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/ordergate/ordergate/internal/gate"
)

// TestForged sends headers in ordergate's names.
func TestForged(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	owned := []string{gate.HeaderKey, gate.HeaderFence}
	urls := []string{gate.HeaderVerdict, "x-original-url", "x-rewrite-url"}
	for _, test := range []struct {
		name, path string
		header     []string
		removed    []string // besides owned
		verdict    string
	}{
		{"none", "/elsewhere", []string{"accept"}, append([]string{gate.HeaderLease}, urls...), ""},
		{"those that are removed anyway", "/elsewhere", owned, append([]string{gate.HeaderLease}, urls...), ""},
		{
			"other spellings and names", "/elsewhere", []string{"x.ordergate.fence", "x_ordergate_key", "x-ordergate-lease-lost", "x.ordergate.fence"},
			append([]string{"x.ordergate.fence", "x_ordergate_key", "x-ordergate-lease-lost", gate.HeaderLease}, urls...), "",
		},
		{"with a lookup", "/orders/42", []string{"x-ordergate-new"}, []string{"x-ordergate-new", gate.HeaderLease}, "maybe"},
		{"a verdict", "/orders/42", []string{gate.HeaderVerdict}, []string{gate.HeaderLease}, "maybe"},
		{"a verdict twice", "/orders/42", []string{gate.HeaderVerdict, gate.HeaderVerdict}, append([]string{gate.HeaderVerdict, gate.HeaderLease}, urls...), ""},
		{"a lease that is settled by", "/settle/42", []string{gate.HeaderLease, "x-ordergate-new"}, append([]string{"x-ordergate-new"}, urls...), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ok := answerTo(t, s, test.path, test.header).GetOkResponse()
			if want := slices.Concat(owned, test.removed); !slices.Equal(ok.GetHeadersToRemove(), want) {
				t.Errorf("removes %q, want %q", ok.GetHeadersToRemove(), want)
			}
			verdict := ""
			for _, h := range ok.GetHeaders() {
				verdict = h.GetHeader().GetValue()
			}
			if verdict != test.verdict {
				t.Errorf("sets the verdict %q, want %q", verdict, test.verdict)
			}
		})
	}
}

// answerTo asks with encode_raw_headers, by which a header may come twice.
func answerTo(t *testing.T, s *Server, path string, names []string) *authv3.CheckResponse {
	t.Helper()
	request := checkRequest(path, nil)
	raw := &corev3.HeaderMap{}
	for _, name := range names {
		raw.Headers = append(raw.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte("forged")})
	}
	request.GetAttributes().GetRequest().GetHttp().HeaderMap = raw
	encoded, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var c check
	if err := c.decode(mem.BufferSlice{mem.SliceBuffer(encoded)}); err != nil {
		t.Fatal(err)
	}
	reply, err := s.respond(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	var response authv3.CheckResponse
	if err := proto.Unmarshal(reply.encoded.Materialize(), &response); err != nil {
		t.Fatal(err)
	}
	return &response
}

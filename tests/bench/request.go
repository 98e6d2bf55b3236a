package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// checkMethod is the path of a check.
const checkMethod = "/envoy.service.auth.v3.Authorization/Check"

// checkRequest returns what Envoy 1.40 sends for a request of a browser's
// script, with the configuration of examples/envoy: every attribute that it
// fills, and the headers that it adds.
func checkRequest(method, path string) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:      peer(51844),
		Destination: peer(10000),
		Request: &authv3.AttributeContext_Request{
			Time: &timestamppb.Timestamp{Seconds: 1_767_225_600, Nanos: 251_940_000},
			Http: &authv3.AttributeContext_HttpRequest{
				Id:       "14320993840446567632",
				Method:   method,
				Path:     path,
				Host:     "orders.example.com",
				Scheme:   "http",
				Protocol: "HTTP/1.1",
				Headers: map[string]string{
					":authority":               "orders.example.com",
					":method":                  method,
					":path":                    path,
					":scheme":                  "http",
					"accept":                   "application/json",
					"accept-encoding":          "gzip, deflate, br",
					"accept-language":          "en-GB,en;q=0.9",
					"authorization":            "Bearer 4f1c2a6e0b9d4c1f8a7e5d3b2c1a0f9e",
					"cookie":                   "session=8c6b1f0de2a94d7f; theme=dark",
					"user-agent":               "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
					"x-envoy-external-address": "127.0.0.1",
					"x-forwarded-for":          "127.0.0.1",
					"x-forwarded-proto":        "http",
					"x-request-id":             "38278ed4-5d5a-4463-802a-44899f7ccb2e",
				},
			},
		},
		MetadataContext:      &corev3.Metadata{},
		RouteMetadataContext: &corev3.Metadata{},
	}}
}

func peer(port uint32) *authv3.AttributeContext_Peer {
	return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{
			Address:       "127.0.0.1",
			PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		},
	}}}
}

// frameHeader is what gRPC puts before a message: a flag and the length.
const frameHeader = 5

// frame returns a message as the body of a gRPC request.
func frame(m proto.Message) ([]byte, error) {
	body, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	header := make([]byte, frameHeader, frameHeader+len(body))
	binary.BigEndian.PutUint32(header[1:], uint32(len(body)))
	return append(header, body...), nil
}

// want is the answer to a check that makes its timing worth anything.
type want struct {
	refused bool
	verdict string // of the x-ordergate-verdict header; "" when there is none
}

// ask makes one check and returns the length of the answer's body in bytes, or
// an error when the answer is another.
func ask(ctx context.Context, addr string, req *authv3.CheckRequest, w want) (size int64, err error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, fmt.Errorf("asking %s: %w", addr, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	answer, err := authv3.NewAuthorizationClient(conn).Check(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("asking %s: %w", addr, err)
	}
	path := req.GetAttributes().GetRequest().GetHttp().GetPath()
	if got := answerOf(answer); got != w {
		return 0, fmt.Errorf("asking %s for %s: the answer is %+v, not %+v", addr, path, got, w)
	}
	return int64(frameHeader + proto.Size(answer)), nil
}

func answerOf(answer *authv3.CheckResponse) want {
	headers := answer.GetOkResponse().GetHeaders()
	refused := answer.GetStatus().GetCode() != 0
	if refused {
		headers = answer.GetDeniedResponse().GetHeaders()
	}
	w := want{refused: refused}
	for _, h := range headers {
		if h.GetHeader().GetKey() == verdictHeader {
			w.verdict = h.GetHeader().GetValue()
		}
	}
	return w
}

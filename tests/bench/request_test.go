package main

import (
	"encoding/binary"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

func TestFrame(t *testing.T) {
	want := checkRequest("GET", "/orders/42")
	body, err := frame(want)
	if err != nil {
		t.Fatal(err)
	}
	if length := binary.BigEndian.Uint32(body[1:frameHeader]); body[0] != 0 || int(length) != len(body)-frameHeader {
		t.Fatalf("flag %d, length %d of %d bytes", body[0], length, len(body)-frameHeader)
	}
	var got authv3.CheckRequest
	if err := proto.Unmarshal(body[frameHeader:], &got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(want, &got) {
		t.Errorf("the frame holds another request: %v", &got)
	}
}

func TestAnswerOf(t *testing.T) {
	verdict := []*corev3.HeaderValueOption{
		{Header: &corev3.HeaderValue{Key: "retry-after", Value: "1"}},
		{Header: &corev3.HeaderValue{Key: verdictHeader, Value: "absent"}},
	}
	denied := &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{Headers: verdict}}
	allowed := &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{Headers: verdict}}
	tests := []struct {
		name   string
		answer *authv3.CheckResponse
		want   want
	}{
		{"bare", &authv3.CheckResponse{}, want{}},
		{"allowed with a verdict", &authv3.CheckResponse{HttpResponse: allowed}, want{false, "absent"}},
		{"denied", &authv3.CheckResponse{Status: &status.Status{Code: 7}, HttpResponse: denied}, want{true, "absent"}},
		{"denied without a word", &authv3.CheckResponse{Status: &status.Status{Code: 7}}, want{true, ""}},
	}
	for _, tt := range tests {
		if got := answerOf(tt.answer); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

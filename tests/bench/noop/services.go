package main

import (
	"context"
	"fmt"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// authorization answers checks, as somebody would who follows Envoy's
// documentation: with a new message each.
type authorization struct {
	authv3.UnimplementedAuthorizationServer
	refuse bool
}

// Check implements authv3.AuthorizationServer.
func (a authorization) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	if a.refuse {
		return &authv3.CheckResponse{
			Status: &status.Status{Code: int32(code.Code_PERMISSION_DENIED)},
			HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: typev3.StatusCode_NotFound},
				Body:   `{"error":"order not found"}`,
			}},
		}, nil
	}
	return allowed(), nil
}

func allowed() *authv3.CheckResponse {
	return &authv3.CheckResponse{
		Status:       &status.Status{Code: int32(code.Code_OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{}},
	}
}

// processor answers the headers of a request and those of its answer, or all messages.
type processor struct {
	procv3.UnimplementedExternalProcessorServer
	all bool
}

// Process implements procv3.ExternalProcessorServer. Which error ends a stream
// says nothing: a good end comes as EOF or as Canceled, whichever is first.
func (p processor) Process(stream procv3.ExternalProcessor_ProcessServer) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return nil
		}
		answer, err := passOn(message)
		if err != nil {
			return err
		}
		if p.all && message.GetRequestHeaders() != nil {
			answer.ModeOverride = &extprocv3.ProcessingMode{
				RequestBodyMode:    extprocv3.ProcessingMode_BUFFERED,
				ResponseHeaderMode: extprocv3.ProcessingMode_SEND, ResponseBodyMode: extprocv3.ProcessingMode_STREAMED,
				ResponseTrailerMode: extprocv3.ProcessingMode_SEND,
			}
		}
		if err := stream.Send(answer); err != nil {
			return nil
		}
	}
}

// seen is what the filter ordergate.guard of examples/envoy looks for.
var seen = &structpb.Struct{Fields: map[string]*structpb.Value{
	"ordergate.guard": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"seen": structpb.NewBoolValue(true)}}),
}}

func passOn(message *procv3.ProcessingRequest) (*procv3.ProcessingResponse, error) {
	switch message.GetRequest().(type) {
	case *procv3.ProcessingRequest_RequestHeaders:
		return &procv3.ProcessingResponse{DynamicMetadata: seen, Response: &procv3.ProcessingResponse_RequestHeaders{
			RequestHeaders: &procv3.HeadersResponse{}}}, nil
	case *procv3.ProcessingRequest_ResponseHeaders:
		return &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ResponseHeaders{
			ResponseHeaders: &procv3.HeadersResponse{}}}, nil
	case *procv3.ProcessingRequest_RequestBody:
		return &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_RequestBody{RequestBody: &procv3.BodyResponse{}}}, nil
	case *procv3.ProcessingRequest_ResponseBody:
		return &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ResponseBody{ResponseBody: &procv3.BodyResponse{}}}, nil
	case *procv3.ProcessingRequest_ResponseTrailers:
		return &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &procv3.TrailersResponse{}}}, nil
	}
	return nil, fmt.Errorf("answering envoy: a %T was not asked for", message.GetRequest())
}

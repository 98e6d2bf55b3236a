package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

// door is a way to the order service through one sidecar. What comes out of it is what
// a client sees, whatever happens behind it.
type door interface {
	// create returns the ID of a new order that the client was told of.
	create(ctx context.Context) (int64, error)
	lookup(ctx context.Context, id int64) (sight, error)
}

// sight is what a client sees of an order.
type sight int8

const (
	found   sight = iota
	missing       // the order service does not have it
	absent        // the sidecar says so
)

// The time limits of examples/envoy/envoy.yaml.
const (
	checkTimeout   = 500 * time.Millisecond
	messageTimeout = 5 * time.Second
)

var errRefused = errors.New("the create was refused")

// faces is an Envoy in so far as a sidecar can see it, with the settings of
// examples/envoy: a check that fails lets a lookup pass, a stream that fails fails
// the create.
type faces struct {
	authz authv3.AuthorizationClient
	proc  extproc.ExternalProcessorClient
	store *store
}

func newFaces(t *testing.T, authz, proc string, s *store) *faces {
	t.Helper()
	return &faces{authv3.NewAuthorizationClient(dial(t, authz)), extproc.NewExternalProcessorClient(dial(t, proc)), s}
}

// dial returns a connection that tries again as soon as Envoy does.
func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond},
			MinConnectTimeout: 250 * time.Millisecond,
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (f *faces) lookup(ctx context.Context, id int64) (sight, error) {
	if denied := f.check(ctx, http.MethodGet, orderPath(id)); denied != nil {
		if denied.GetStatus().GetCode() != http.StatusNotFound || !saysAbsent(denied) {
			return 0, fmt.Errorf("the lookup of %d was refused with %v", id, denied)
		}
		return absent, nil
	}
	there, err := f.store.exists(ctx, id)
	if err != nil || there {
		return found, err
	}
	return missing, nil
}

// check asks ext_authz and returns the refusal, nil if there is none.
func (f *faces) check(ctx context.Context, method, path string) *authv3.DeniedHttpResponse {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	answer, err := f.authz.Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: method, Path: path, Host: "orders.test",
			Headers: map[string]string{":method": method, ":path": path, ":authority": "orders.test"},
		}},
	}})
	if err != nil {
		return nil // failure_mode_allow
	}
	return answer.GetDeniedResponse()
}

func saysAbsent(denied *authv3.DeniedHttpResponse) bool {
	for _, h := range denied.GetHeaders() {
		if h.GetHeader().GetKey() == verdictHeader {
			return h.GetHeader().GetValue() == "absent"
		}
	}
	return false
}

const verdictHeader = "x-ordergate-verdict"

func orderPath(id int64) string { return "/orders/" + strconv.FormatInt(id, 10) }

func (f *faces) create(ctx context.Context) (int64, error) {
	if f.check(ctx, http.MethodPost, "/orders") != nil {
		return 0, errRefused
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // as Envoy resets the stream of a request that is over
	s, err := openStream(ctx, cancel, f.proc)
	if err != nil {
		return 0, err
	}
	reply, err := s.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extproc.HttpHeaders{EndOfStream: true, Headers: headers(
			":method", http.MethodPost, ":path", "/orders", ":authority", "orders.test", ":scheme", "http")},
	}})
	if err != nil {
		return 0, err
	}
	mode := reply.GetModeOverride()
	id, err := f.store.create(context.WithoutCancel(ctx)) // it happens, whoever waits
	if err != nil {
		return 0, err
	}
	if mode.GetResponseHeaderMode() != procmode.ProcessingMode_SEND {
		return id, nil // nobody asks for the answer
	}
	_, err = s.tell(&extproc.ProcessingRequest{
		Request: &extproc.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: &extproc.HttpHeaders{Headers: headers(
				":status", "201", "content-type", "application/json", "x-envoy-upstream-service-time", "1")},
		},
		Attributes: map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{
			"response.code_details":          structpb.NewStringValue("via_upstream"),
			"upstream.request_attempt_count": structpb.NewNumberValue(1),
		}}},
	})
	if err != nil {
		return 0, err
	}
	if mode.GetResponseBodyMode() == procmode.ProcessingMode_NONE {
		return id, nil
	}
	_, err = s.tell(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
		ResponseBody: &extproc.HttpBody{Body: created(id), EndOfStream: true},
	}})
	return id, err
}

// stream is an ext_proc stream of one create.
type stream struct {
	extproc.ExternalProcessor_ProcessClient
	giveUp context.CancelFunc
	over   bool // the server ended it in order: Envoy goes on without it
}

func openStream(ctx context.Context, cancel context.CancelFunc, client extproc.ExternalProcessorClient) (*stream, error) {
	timer := time.AfterFunc(messageTimeout, cancel)
	defer timer.Stop()
	s, err := client.Process(ctx)
	return &stream{s, cancel, false}, err
}

// tell sends a message and returns the reply to it. An error is one that the client
// gets in place of an answer.
func (s *stream) tell(message *extproc.ProcessingRequest) (*extproc.ProcessingResponse, error) {
	if s.over {
		return nil, nil
	}
	timer := time.AfterFunc(messageTimeout, s.giveUp)
	defer timer.Stop()
	if err := s.Send(message); err != nil && !errors.Is(err, io.EOF) { // of EOF, Recv tells the reason
		return nil, err
	}
	reply, err := s.Recv()
	switch {
	case errors.Is(err, io.EOF):
		s.over = true
		return nil, nil
	case err != nil:
		return nil, err
	case reply.GetImmediateResponse() != nil:
		return nil, errRefused
	}
	return reply, nil
}

func headers(pairs ...string) *corev3.HeaderMap {
	var m corev3.HeaderMap
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return &m
}

// envoyDoor is a real Envoy.
type envoyDoor struct {
	url    string
	client *http.Client
}

func newEnvoyDoor(t *testing.T, addr string) *envoyDoor {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * slots}
	t.Cleanup(transport.CloseIdleConnections)
	return &envoyDoor{"http://" + addr, &http.Client{Transport: transport, Timeout: 3 * messageTimeout}}
}

func (d *envoyDoor) create(ctx context.Context) (int64, error) {
	answer, err := d.send(ctx, http.MethodPost, "/orders")
	if err != nil {
		return 0, err
	}
	if answer.status != http.StatusCreated {
		return 0, fmt.Errorf("%w: status %d", errRefused, answer.status)
	}
	var order struct {
		ID int64 `json:"orderId"`
	}
	err = json.Unmarshal(answer.body, &order)
	return order.ID, err
}

func (d *envoyDoor) lookup(ctx context.Context, id int64) (sight, error) {
	answer, err := d.send(ctx, http.MethodGet, orderPath(id))
	switch {
	case err != nil:
		return 0, err
	case answer.status == http.StatusOK:
		return found, nil
	case answer.status != http.StatusNotFound:
		return 0, fmt.Errorf("the lookup of %d: status %d", id, answer.status)
	case answer.verdict == "absent":
		return absent, nil
	}
	return missing, nil
}

type httpAnswer struct {
	status  int
	verdict string
	body    []byte
}

func (d *envoyDoor) send(ctx context.Context, method, path string) (a httpAnswer, err error) {
	request, err := http.NewRequestWithContext(ctx, method, d.url+path, nil)
	if err != nil {
		return a, err
	}
	response, err := d.client.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	a.body, err = io.ReadAll(response.Body)
	a.status, a.verdict = response.StatusCode, response.Header.Get(verdictHeader)
	return a, err
}

package extauthz

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/order"
)

// decode runs our own reading of a message.
func decode(message []byte) (*check, error) {
	c := new(check)
	return c, c.decode(mem.BufferSlice{mem.SliceBuffer(message)})
}

// find goes through the headers.
func find(h order.Header, name string) (value string, times int) {
	for cursor := 0; ; {
		n, v, next := h.Next(cursor)
		if next < 0 {
			return value, times
		}
		if n == name {
			value = v
			times++
		}
		cursor = next
	}
}

// TestReadsWhatProtobufReads compares with the generated code.
func TestReadsWhatProtobufReads(t *testing.T) {
	word := rapid.StringMatching(`[a-z]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		http := &authv3.AttributeContext_HttpRequest{
			Id: word.Draw(t, "id"), Method: word.Draw(t, "method"), Path: word.Draw(t, "path"), Host: word.Draw(t, "host"),
			Size: rapid.Int64().Draw(t, "size"), Protocol: word.Draw(t, "protocol"),
			Headers: rapid.MapOf(word, word).Draw(t, "headers"),
		}
		if rapid.Bool().Draw(t, "raw headers") {
			http.HeaderMap = &corev3.HeaderMap{}
			for name, value := range http.Headers {
				http.HeaderMap.Headers = append(http.HeaderMap.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
			}
			http.Headers = nil
		}
		message, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Source:            &authv3.AttributeContext_Peer{Service: word.Draw(t, "service")},
			Request:           &authv3.AttributeContext_Request{Http: http},
			ContextExtensions: map[string]string{"a": "b"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(message)
		if err != nil {
			t.Fatal(err)
		}
		r := got.request()
		if r.Method != http.GetMethod() || r.Target != http.GetPath() || r.Host != http.GetHost() {
			t.Fatalf("read %+v, want %v", r, http)
		}
		for name, value := range http.GetHeaders() {
			if v, n := find(got, name); v != value || n != 1 {
				t.Fatalf("header %q is %q (%d times), want %q", name, v, n, value)
			}
		}
		for _, h := range http.GetHeaderMap().GetHeaders() {
			if v, n := find(got, h.GetKey()); v != string(h.GetRawValue()) || n != 1 {
				t.Fatalf("raw header %q is %q (%d times), want %q", h.GetKey(), v, n, h.GetRawValue())
			}
		}
	})
}

// FuzzCheck feeds any bytes: no panic, and no reading of what protobuf rejects
// as a whole. (We check the structure down to the request; protobuf also checks
// the rest, and UTF-8.)
func FuzzCheck(f *testing.F) {
	good, err := proto.Marshal(checkRequest("/orders/42", map[string]string{"x-order": "42"}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := decode(message)
		if err != nil {
			return
		}
		find(got, "x-order")
		var want authv3.CheckRequest
		if proto.Unmarshal(message, &want) != nil {
			return
		}
		if proto.Size(&want) != len(message) {
			return // repeated or split fields, which protobuf merges
		}
		http := want.GetAttributes().GetRequest().GetHttp()
		if r := got.request(); r.Method != http.GetMethod() || r.Target != http.GetPath() || r.Host != http.GetHost() {
			t.Errorf("read %+v, want %v", r, http)
		}
	})
}

package gate_test

import (
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// TestEncodedAnswer has a backend that ignores that the request accepts no encoding. A decompressor
// may have left the header.
func TestEncodedAnswer(t *testing.T) {
	for body, why := range map[string]string{`{"id":42}`: "", "\x1f\x8b": "the answer has a Content-Encoding"} {
		c, _ := newCreate(t, gate.Learn{JSON: []string{"id"}}, "/orders")
		r := gate.Response{Status: 201, Details: "via_upstream", Attempts: 1, AttemptHeader: -1, Header: order.HeaderList{{"content-encoding", "gzip"}}}
		readsBody, err := answered(t, c, r, body, "")
		if !readsBody || (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%q: its body is read: %v; %v", body, readsBody, err)
		}
	}
}

package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ordergate/ordergate/internal/order"
)

// TestPlain has texts that a log, a terminal or a page could obey.
func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "",
		"1001":                    "1001",
		"SO:2026-1_a.b":           "SO:2026-1_a.b",
		"<script>":                "%3Cscript%3E",
		"a b\"c'd\\e`f&g%h\n\x1b": "a%20b%22c%27d%5Ce%60f%26g%25h%0A%1B",
		"ä\u009b\xff":             "%C3%A4%C2%9B%FF",
		strings.Repeat("x", 256):  strings.Repeat("x", 256),
		strings.Repeat("x", 9999): strings.Repeat("x", 254) + "...",
	} {
		if got := plain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := plain(strings.Repeat("\xff", 9999)); len(got) > maxPlain+3 {
		t.Errorf("%d bytes", len(got))
	}
}

// TestEncoded has metadata decoded by protobuf itself.
func TestEncoded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for _, m := range []Metadata{
		{},
		{Outcome: "known"},
		{Order: "1001", Wait: 1234567 * time.Nanosecond, encoded: [3][]byte{encodeActions("look")[ActionLookup], encodedVerdicts[VerdictMaybe]}},
		{Order: long, Fence: "7", Outcome: "unknown", Wait: time.Hour, encoded: [3][]byte{encodeActions(long)[ActionSettle], encodedVerdicts[VerdictInvalid], encodedReasons[order.MalformedID]}},
	} {
		var s structpb.Struct
		encoded := m.AppendNamespace(nil)
		if err := proto.Unmarshal(encoded, &s); err != nil || len(encoded) != m.NamespaceSize() || len(m.AppendStruct(nil)) != m.Size() {
			t.Fatalf("%+v: %v, %d bytes, %d in all", m, err, m.Size(), len(encoded))
		}
		want := map[string]any{}
		for name, text := range map[string]string{"order": m.Order, "fence": m.Fence, "outcome": m.Outcome} {
			if text != "" {
				want[name] = text
			}
		}
		if m.Wait > 0 {
			want["wait_ms"] = m.WaitMS()
		}
		if m.encoded[0] != nil {
			want["rule"], want["action"], want["verdict"] = "look", "lookup", "maybe"
		}
		if m.encoded[2] != nil {
			want["rule"], want["action"], want["verdict"], want["reason"] = long, "settle", "invalid", "malformed_id"
		}
		if diff := cmp.Diff(map[string]any{MetadataNamespace: want}, s.AsMap()); diff != "" {
			t.Error(diff)
		}
	}
}

package order

import "testing"

func TestIsOurs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"x-ordergate-key":          true,
		"x_ordergate_key":          true,
		"x.ordergate.key":          true,
		"x~ordergate!key":          true,
		"X-Ordergate-Lease-Lost":   true,
		"x-ordergate-not-invented": true,
		"x-ordergate_":             false, // no name behind the prefix
		"x-ordergate":              false,
		"x-ordergates-key":         false,
		"x--ordergate-key":         false, // PHP has HTTP_X__ORDERGATE_KEY
		"x-order-id":               false,
		"xordergate-key":           false,
		"y-ordergate-key":          false,
		"":                         false,
	} {
		if got := IsOurs(name); got != want {
			t.Errorf("IsOurs(%q) = %v, want %v", name, got, want)
		}
	}
}

// BenchmarkIsOurs is the cost of the headers of an ordinary request.
func BenchmarkIsOurs(b *testing.B) {
	names := []string{
		":method", ":path", ":authority", ":scheme", "accept", "accept-encoding", "user-agent", "cookie", "referer",
		"x-forwarded-for", "x-forwarded-proto", "x-request-id", "x-order-id", "content-type", "traceparent",
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, name := range names {
			if IsOurs(name) {
				b.Fatal(name)
			}
		}
	}
}

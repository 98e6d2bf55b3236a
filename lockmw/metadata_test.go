package lockmw

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// BenchmarkDescribe is what a settlement pays for its metadata: its reply is encoded with and without.
func BenchmarkDescribe(b *testing.B) {
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	for name, described := range map[string]bool{"with": true, "without": false} {
		b.Run(name, func(b *testing.B) {
			g := gatetest.Gate(b, []gate.Policy{{
				Rule: order.Rule{
					Name: "commission-settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
					IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}},
				},
				Settle: &gate.Settle{Lock: &gatetest.Lock{}},
			}}, gatetest.Silent{})
			if !described {
				g.Undescribed()
			}
			call := g.Open(order.Request{Method: "POST", Target: "/orders/100123456/settle", BodyState: order.BodyComplete})
			step := gatetest.Settle(b.Context(), call)
			b.ReportAllocs()
			for b.Loop() {
				reply := skipRuled
				if step.Metadata != nil {
					reply = withMetadata(reply, step.Metadata)
				}
				if _, err := proto.Marshal(reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package rules

import (
	"testing"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
)

// TestListsThatNoRequestFits has the matcher refuse what requests under the lists send that
// config refuses: each names one order, and plainly.
func TestListsThatNoRequestFits(t *testing.T) {
	const uuid = "5b6ef3c2-1111-4222-8333-444455556666"
	digits := config.ID{Format: config.FormatDigits, MinLength: 1, MaxLength: 5}
	with := func(id config.ID, change func(*config.ID)) config.ID { change(&id); return id }
	for name, tt := range map[string]struct {
		ids  []config.ID
		reqs []order.Request
	}{
		"headers": {
			[]config.ID{with(digits, func(id *config.ID) { id.Header = "x-order-id" }), with(digits, func(id *config.ID) { id.Header = "x_order_id" })},
			[]order.Request{{Target: "/m/1/o/2", Header: order.HeaderList{{"x-order-id", "42"}}}, {Target: "/m/1/o/2", Header: order.HeaderList{{"x_order_id", "42"}}}},
		},
		"segments": {
			[]config.ID{with(digits, func(id *config.ID) { id.Path = "m" }), with(digits, func(id *config.ID) { id.Path = "id" })},
			[]order.Request{{Target: "/m/1/o/2"}},
		},
		"formats": {
			[]config.ID{with(digits, func(id *config.ID) { id.Path = "id" }), {Query: "order", Format: config.FormatUUID}},
			[]order.Request{{Target: "/m/1/o/2?order=" + uuid}, {Target: "/m/1/o/2?order=2"}},
		},
		"lengths": {
			[]config.ID{with(digits, func(id *config.ID) { id.Path = "id" }), with(digits, func(id *config.ID) { id.Query, id.MinLength, id.MaxLength = "order", 6, 9 })},
			[]order.Request{{Target: "/m/1/o/2?order=123456"}, {Target: "/m/1/o/2?order=2"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, backend := range []string{config.BackendStrict, config.BackendTomcat, config.BackendSpring, config.BackendPHP} {
				rule, err := orderRule(&config.Rule{
					Name: "r", Backend: backend, Match: config.Match{Methods: []string{"POST"}, Path: "/m/{m}/o/{id}"}, IDs: tt.ids,
				}, "")
				if err != nil {
					t.Fatal(err)
				}
				table, err := order.NewTable([]order.Rule{rule})
				if err != nil {
					t.Fatal(err)
				}
				for _, req := range tt.reqs {
					req.Method, req.BodyState = "POST", order.BodyComplete
					if m := table.Match(req); m.Result == order.Named {
						t.Errorf("%s: %s %v names order %s", backend, req.Target, req.Header, m.ID)
					}
				}
			}
		})
	}
}

package headername

import "testing"

func TestEqual(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, other string
		want        bool
	}{
		{"x-order-id", "x-order-id", true},
		{"X-Order-ID", "x_order_id", true},
		{"x.order~id", "x-order-id", true},
		{"", "", true},
		{"x-order-id", "x-orderid", false},
		{"x-order-1", "x-order-2", false},
		{"x-order-id", "x--order-id", false}, // PHP has HTTP_X__ORDER_ID
	} {
		if got := Equal(tt.name, tt.other); got != tt.want || Equal(tt.other, tt.name) != tt.want {
			t.Errorf("Equal(%q, %q) = %v, want %v both ways", tt.name, tt.other, got, tt.want)
		}
	}
}

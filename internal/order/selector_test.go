package order

import "testing"

// TestContinuedRoutes has values with segments behind those of a rule, which old routers ignore.
func TestContinuedRoutes(t *testing.T) {
	formed := HeaderList{{"content-type", typeForm}}
	for _, r := range []oddRequest{
		{"the rule", "POST", "/index.php?route=payment/cod/confirm", nil, "", ""},
		{"continued", "POST", "/index.php?route=payment/cod/confirm/x", nil, "", "parameter_alias"},
		{"continued by an empty segment", "POST", "/index.php?route=payment/cod/confirm/", nil, "", "parameter_alias"},
		{"continued often", "POST", "/index.php?route=payment/cod/confirm/x/y", nil, "", "parameter_alias"},
		{"continued and escaped", "POST", "/index.php?route=payment/cod/confirm%252Fx", nil, "", "parameter_alias"},
		{"continued and folded", "POST", "/index.php?route=Payment/cod-/confirm/x", nil, "", "parameter_alias"},
		{"the default method, continued", "POST", "/index.php?route=checkout/confirm/index/x", nil, "", "parameter_alias"},
		{"continued, with segments that are dropped", "POST", "/index.php?route=payment//-/cod/+/confirm/x", nil, "", "parameter_alias"},
		{"in a form", "POST", "/index.php", formed, "route=payment/cod/confirm/x", "parameter_alias"},
		{"another method", "POST", "/index.php?route=payment/cod/confirmation/x", nil, "", ""},
		{"another method of a shorter route", "POST", "/index.php?route=checkout/confirm/address", nil, "", ""},
		{"a rule of its own", "POST", "/index.php?route=payment/cod/confirm/later", nil, "", ""},
		{"that one in other letters", "POST", "/index.php?route=payment/cod/confirm/Later", nil, "", "parameter_alias"},
	} {
		for _, b := range []Backend{Strict, PHP} {
			route := func(values ...string) map[string][]string { return map[string][]string{"route": values} }
			table, err := NewTable([]Rule{
				{Name: "confirm", Methods: []string{"POST"}, Path: "/index.php", Query: route("payment/cod/confirm", "checkout/confirm"), Backend: b},
				{Name: "later", Methods: []string{"POST"}, Path: "/index.php", Query: route("payment/cod/confirm/later"), Pass: true, Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: %s %s: got %q, want %q", b, r.name, r.method, r.target, got, r.want)
			}
		}
	}
}

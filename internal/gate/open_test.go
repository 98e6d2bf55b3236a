package gate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// TestOpenRefusesWhatScreenDoes compares the two steps of a request. Open refuses each request
// that Screen refuses, except for an order that is absent. So when a reload comes between the
// steps, the rules of Open alone decide whether the request gets a lock or is refused.
func TestOpenRefusesWhatScreenDoes(t *testing.T) {
	path := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	query := []order.ID{{In: order.InQuery, Name: "order_id", Format: digits}}
	inJSON := []order.ID{{In: order.InJSON, Members: []string{"orderId"}, MaxBody: 1000, Format: digits}}
	filter, locks := &gatetest.Filter{Answers: map[string]presence.Answer{"42": presence.Maybe}}, &gatetest.Lock{}
	look, settle := &gate.Lookup{Filter: filter, Absent: gate.Reply{Status: 404}}, &gate.Settle{Lock: locks}
	create := &gate.Create{Filter: filter, Learn: gate.Learn{JSON: []string{"orderId"}}, Format: digits}
	rule := func(method, path string, ids []order.ID, b order.Backend) order.Rule {
		return order.Rule{Name: method + path, Methods: []string{method}, Path: path, IDs: ids, Backend: b}
	}
	refused, differ := 0, 0
	for backend := order.Strict; backend <= order.PHP; backend++ {
		for name, policies := range map[string][]gate.Policy{
			"lookup by GET":   {{Rule: rule("GET", "/orders/{id}", path, backend), Lookup: look}},
			"lookup by POST":  {{Rule: rule("POST", "/orders/{id}/settle", path, backend), Lookup: look}},
			"lookup in query": {{Rule: rule("POST", "/orders", query, backend), Lookup: look}},
			"lookup in JSON":  {{Rule: rule("POST", "/orders", inJSON, backend), Lookup: look}},
			"settlement":      {{Rule: rule("POST", "/orders/{id}/settle", path, backend), Settle: settle}},
			"both":            {{Rule: rule("POST", "/orders/{id}/settle", path, backend), Lookup: look, Settle: settle}},
			"two": {
				{Rule: rule("POST", "/orders/{id}", path, backend), Lookup: look},
				{Rule: rule("POST", "/orders/{id}/settle", path, backend), Settle: settle},
			},
			"create":   {{Rule: rule("POST", "/orders", nil, backend), Create: create}},
			"observed": {{Rule: rule("POST", "/orders/{id}/settle", path, backend), Lookup: look, Observe: true}},
		} {
			g, err := gate.New(policies, &gatetest.Recorder{}, time.Now)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			eachOddRequest(func(req order.Request) {
				d, call := g.Screen(t.Context(), req), g.Open(req)
				if !d.Refused || d.Verdict == gate.VerdictAbsent {
					return
				}
				if refused++; !call.Decision.Refused {
					if differ++; differ < 20 {
						t.Errorf("%s, backend %d: %s is refused for %s, and Open passes it on", name, backend, showRequest(req), d.Reason.Name())
					}
				}
			})
		}
	}
	if refused < 1000 {
		t.Errorf("only %d requests were refused", refused)
	}
}

func showRequest(req order.Request) string {
	return fmt.Sprintf("%s %s %v %q", req.Method, req.Target, req.Header, req.Body)
}

// eachOddRequest calls do with requests near the rules above, each with its whole body.
func eachOddRequest(do func(order.Request)) {
	targets := []string{
		"/orders", "/orders/42", "/orders/042", "/orders/abc", "/orders/42/settle", "/orders/042/settle", "/orders/%34%32/settle",
		"/orders/42;x/settle", "/orders//42/settle", "/orders/42/settle/", "/ORDERS/42/settle", "/index.php/orders/42/settle",
		"/index.php?action=settle&id=42", "/?route=orders/42/settle", "//x/orders/42/settle", "/orders?order_id=42&order_id=43",
		"/orders/42/settle?order_id=43", "/orders/42?_method=POST", "/orders/42/settle?id=43", "/elsewhere",
	}
	kinds := []order.HeaderList{
		nil, {{"x-http-method-override", "POST"}}, {{"x-original-url", "/orders/42/settle"}}, {{"cookie", "order_id=43"}}, {{"x-ordergate-verdict", "maybe"}},
		{{"content-type", "application/json"}}, {{"content-type", "application/x-www-form-urlencoded"}}, {{"content-type", "multipart/form-data; boundary=b"}},
	}
	bodies := []string{"", `{"orderId":42}`, `{"orderId":42,"orderId":43}`, `{"id":43}`, "order_id=43", "_method=POST", "--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n43\r\n--b--"}
	for _, method := range []string{"GET", "POST", "PUT", "post"} {
		for _, target := range targets {
			for _, h := range kinds {
				for _, body := range bodies {
					do(order.Request{Method: method, Target: target, Header: h, Body: []byte(body), BodyState: order.BodyComplete})
				}
			}
		}
	}
}

// TestObservedBesideEnforced has requests of rules that only observe, which a backend may read as the
// settlement of an enforced rule. They are refused; without such a rule they pass, as all others.
func TestObservedBesideEnforced(t *testing.T) {
	path := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	filter, settle := &gatetest.Filter{Answers: map[string]presence.Answer{"42": presence.Maybe}}, &gate.Settle{Lock: &gatetest.Lock{}}
	create := &gate.Create{Filter: filter, Learn: gate.Learn{JSON: []string{"orderId"}}, Format: digits}
	formed := order.HeaderList{{"content-type", "application/x-www-form-urlencoded"}}
	for _, observed := range []bool{false, true} {
		g := gatetest.Gate(t, []gate.Policy{
			{Rule: order.Rule{Name: "look", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: path, Backend: order.PHP}, Lookup: &gate.Lookup{Filter: filter}, Observe: true},
			{Rule: order.Rule{Name: "settle", Methods: []string{"GET"}, Path: "/orders/{id}/settle", IDs: path, Backend: order.PHP}, Settle: settle, Observe: observed},
			{Rule: order.Rule{Name: "pay", Methods: []string{"POST"}, Path: "/order", Query: map[string][]string{"do": {"pay"}}, Backend: order.PHP}, Settle: settle, Observe: observed},
			{Rule: order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/order", Backend: order.PHP}, Create: create, Observe: true},
		}, &gatetest.Recorder{})
		for _, r := range []struct {
			req   order.Request
			means bool // another rule, perhaps
		}{
			{order.Request{Method: "GET", Target: "/orders/42%2Fsettle"}, true},
			{order.Request{Method: "POST", Target: "/order", Header: formed, Body: []byte("do=pay")}, true},
			{order.Request{Method: "POST", Target: "/order", Header: formed, Body: []byte("do=home")}, false},
			{order.Request{Method: "GET", Target: "/orders/42?id=43"}, false},
			{order.Request{Method: "GET", Target: "/orders/x"}, false},
			{order.Request{Method: "GET", Target: "/orders/42"}, false},
		} {
			r.req.BodyState = order.BodyComplete
			want := r.means && !observed
			if d, call := g.Screen(t.Context(), r.req), g.Open(r.req); d.Refused != want || call.Decision.Refused != want {
				t.Errorf("settlements observed %t: %s: refused %t and %t, want %t", observed, showRequest(r.req), d.Refused, call.Decision.Refused, want)
			}
		}
	}
}

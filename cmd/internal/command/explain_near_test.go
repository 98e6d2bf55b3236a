package command

import (
	"strings"
	"testing"
)

// nearRules has rules by parameters, a host and segments of paths.
const nearRules = `
redis: {mode: embedded}
backend: php
filters: {orders: {}}
locks: {settlement: {}}
rules:
  - {name: pay, match: {methods: [POST], path: /index.php, query: {route: payment/confirm, sub: now}}, id: {query: order_id}, settle: {lock: settlement}}
  - {name: view, match: {methods: [GET], path: /index.php, query: {route: [account/order, account/sale]}}, id: {query: order_id}, lookup: {filter: orders}}
  - {name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: settlement}}
  - {name: order, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id}, lookup: {filter: orders}}
  - {name: hosted, match: {methods: [GET], path: "/sales/{id}", host: shop.example}, id: {path: id}, lookup: {filter: orders}}
`

// TestExplainNeighbours has requests that pass by no rule, and the rules that they miss by one thing.
func TestExplainNeighbours(t *testing.T) {
	file := writeConfig(t, nearRules)
	for line, want := range map[string]string{
		"POST /index.php?route=payment/confirm&sub=later": "pay, but the parameter sub is later, not now",
		"POST /index.php?route=payment/confirm":           "pay, but it has no parameter sub=now",
		"POST /index.php?route=x&sub=later":               "",
		"GET /index.php?route=account/other":              "view, but the parameter route is account/other, not account/order or account/sale",
		"GET /index.php":                                  "view, but it has no parameter route=account/order or account/sale",
		"DELETE /orders/42":                               "order, but the method is DELETE, not GET",
		"POST /orders/42/settles":                         "settle, but the path has /settles, not /settle",
		"POST /orders/42":                                 "settle, but the path lacks /settle|order, but the method is POST, not GET",
		"GET /order/42":                                   "order, but the path has /order, not /orders",
		"HEAD /Orders/42":                                 "order, but the path has /Orders, not /orders",
		"GET /orders/":                                    "order, but the path has nothing for /{id}",
		"GET /orders/42/\xff":                             `order, but the path has /\xff behind /orders/{id}`,
		"GET /sales/42":                                   "hosted, but it wants -H 'host: shop.example'",
		"GET /x":                                          "",
		"GET /":                                           "",
		"DELETE /orders/42/x":                             "",
	} {
		e, raw := explainJSON(t, nil, "--config", file, line)
		var got []string
		for _, n := range e.Near {
			got = append(got, n.Rule+", but "+n.Text)
		}
		if e.Rule != nil || strings.Join(got, "|") != want {
			t.Errorf("%s: got %q, want %q in\n%s", line, got, want, raw)
		}
	}
}

// TestExplainParameter has queries in which a parameter before or behind the routed ones is wrong.
func TestExplainParameter(t *testing.T) {
	file := writeConfig(t, nearRules)
	for line, want := range map[string]string{
		"GET /index.php?id=43&route=account/order&order_id=42":                "id=43",
		"GET /index.php?order_id=42&id=43&route=account/order":                "id=43",
		"POST /index.php?route=payment/confirm&sub=NOW&order_id=42":           "sub=NOW",
		"POST /index.php?sub=NOW&route=payment/confirm&order_id=42":           "sub=NOW",
		"POST /index.php?route=Payment/confirm&sub=now&order_id=42":           "route=Payment/confirm",
		"POST /index.php?sub=now&route=payment/confirm&order_id=42&sub=x":     "sub=x",
		"POST /index.php?sub=x&route=payment/confirm&sub=now&order_id=42&a=b": "sub=x",
	} {
		if e, raw := explainJSON(t, nil, "--config", file, line); e.Piece == nil || *e.Piece != want {
			t.Errorf("%s: want %q in\n%s", line, want, raw)
		}
	}
}

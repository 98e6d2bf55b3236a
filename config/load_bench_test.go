package config

import (
	"fmt"
	"strings"
	"testing"
)

// manyRules is a file of n rules, of each kind as many, with as many locks as the orders of tenants
// need.
func manyRules(n int) []byte {
	var b strings.Builder
	b.WriteString("filters: {orders: {parts: [tenant]}, plain: {}}\nlocks:\n  merchants: {kind: semaphore, permits: 2, key: \"merchant:{id}\"}\n")
	for i := range n / 10 {
		fmt.Fprintf(&b, "  l%d: {key: \"lock%d:{tenant}/{id}\"}\n", i, i)
	}
	b.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - name: r%d\n    match: {methods: [%s], path: \"/shop/v%d/orders/{id}", i, []string{"GET, HEAD", "POST", "POST, PUT", "GET"}[i%4], i/4)
		const tenant = "\"}\n    id: [{path: id}, {header: x-order}]\n    parts: {tenant: {header: x-tenant, format: pattern, pattern: \"[a-z]+\"}}\n"
		switch i % 4 {
		case 0:
			b.WriteString(tenant + "    lookup: {filter: orders}\n")
		case 1:
			fmt.Fprintf(&b, "/settle%s    settle: {lock: l%d, once: {}, limit: {lock: merchants, id: {query: merchant}}, require: [{latch: \"loaders:{tenant}/{id}\"}]}\n", tenant, i/4%(n/10))
		case 2:
			b.WriteString("/new\"}\n    create: {filter: plain, learn: {response_json: orderId}, once: {by: idempotency-key}}\n    answer: {done: [{status: 2xx}]}\n")
		case 3:
			b.WriteString("/lines\", query: {action: [view, list]}}\n    id: {path: id, format: uuid}\n    lookup: {filter: plain}\n    answer: {failed: [{json: {code: [1, 2]}}]}\n")
		}
	}
	return []byte(b.String())
}

// BenchmarkParse reads a file of 1,000 rules, as ordergate check does.
func BenchmarkParse(b *testing.B) {
	file := manyRules(1000)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("f.yaml", file, nil); err != nil {
			b.Fatal(err)
		}
	}
}

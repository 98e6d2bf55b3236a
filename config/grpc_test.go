package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnreadBodies has rules that read bodies, at paths of gRPC methods and at others.
func TestUnreadBodies(t *testing.T) {
	const file = `
filters: {orders: {}}
locks: {settlement: {}, merchants: {kind: semaphore, permits: 2, key: "m:{id}"}}
rules:
- {name: a, match: {methods: [POST], path: /shop.v1.Orders/Settle}, id: [{json: id}, {header: x-id}, {form: order}], settle: {lock: settlement, limit: {lock: merchants, id: {json: merchant}}}}
- {name: b, match: {methods: [POST], path: /shop.Orders/Create}, create: {filter: orders, learn: {response_json: id}}}
- {name: c, match: {methods: [POST], path: /shop.Orders/Get}, id: {header: x-id}, lookup: {filter: orders}}
- {name: d, match: {methods: [PUT], path: /shop.Orders/Put}, id: {json: id}, lookup: {filter: orders}}
- {name: e, match: {methods: [POST], path: /Orders/Get}, id: {json: id}, lookup: {filter: orders}}
- {name: f, match: {methods: [POST], path: /shop.Orders/get}, id: {json: id}, lookup: {filter: orders}}
- {name: g, match: {methods: [POST], path: /twirp/shop.Orders/Get}, id: {json: id}, lookup: {filter: orders}}
`
	const reads = "reads a body, and the path looks like a gRPC method's: the messages of gRPC are protobuf, which ordergate does not read. "
	const metadata = "Have clients send the ID as metadata, and read it with header"
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	_, aside, err := loadWith(path, Options{Getenv: env{}.get})
	if err != nil {
		t.Fatal(err)
	}
	want := []Violation{
		{File: path, Line: 5, Path: "rules[0].id[0].json", Message: reads + metadata},
		{File: path, Line: 5, Path: "rules[0].id[2].form", Message: reads + metadata},
		{File: path, Line: 5, Path: "rules[0].settle.limit.id.json", Message: reads + metadata},
		{File: path, Line: 6, Path: "rules[1].create.learn.response_json", Message: reads + "Have the backend send the ID as initial metadata, and read it with response_header"},
	}
	if diff := cmp.Diff(want, aside.Bodies); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

package command

import (
	"strings"
	"testing"
)

// shared has rules of which a share is enforced.
const shared = `
redis: {addresses: ['127.0.0.1:1']}
filters: {orders: {}}
locks: {settlement: {key: "order:lock:{id}"}}
rules:
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    settle: {lock: settlement}
    mode: {enforce: 80%}
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true}
    settle: {lock: settlement}
    mode: {enforce: 80%}
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id}
    lookup: {filter: orders}
    mode: {enforce: 80%}
  - name: canary
    match: {methods: [GET], path: "/canary/{id}"}
    id: {path: id}
    lookup: {filter: orders}
    mode: {enforce: {header: x-canary, value: "1"}}
`

func TestExplainShares(t *testing.T) {
	file := writeConfig(t, shared)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"of the share", []string{"POST /orders/1001/settle"}, `
rule         settle (settle, {enforce: 80%})
enforced     yes: a share of 71.25% or more has this order
found        1001 in path segment {id}
order ID     1001
lock key     order:lock:1001
verdict      decided at run time, one of:
busy         409, if another holds the lock past the wait`},
		{"outside of the share", []string{"POST /orders/42/settle"}, `
rule         settle (settle, {enforce: 80%})
enforced     no: a share of 98.83% or more has this order
found        42 in path segment {id}
order ID     42
lock key     order:lock:42:observe
verdict      decided at run time, one of:
busy         the backend's (409 if it were enforced), if another holds the lock past the wait`},
		{"a list", []string{"POST /batch", "-H", jsonType, "-d", `{"ids":[42,1001]}`}, `
enforced     yes: a share of 71.25% or more has one of these orders`},
		{"unreadable, with a lock", []string{"POST /orders/042/settle"}, `
enforced     yes: it may settle any order
found        042 in path segment {id}
verdict      invalid
status       400`},
		{"unreadable, without a lock", []string{"GET /orders/042"}, `
enforced     no: it cannot be read as a settlement
found        042 in path segment {id}
verdict      invalid
status       the backend's (400 if it were enforced)`},
		{"unreadable, as a settlement", []string{"GET /canary/42%2Fsettle"}, `
enforced     yes: it may settle any order
found        42%2Fsettle in path segment {id}
verdict      invalid
status       400`},
		{"with the header", []string{"GET /canary/42", "-H", "x-canary: 1"}, `
rule         canary (lookup, {enforce: {header: x-canary, value: "1"}})
enforced     yes: it has the header x-canary`},
		{"without the header", []string{"GET /canary/42", "-H", "x-canary: 2"}, `
enforced     no: it does not have the header x-canary once, as the mode wants it
found        42 in path segment {id}
order ID     42
verdict      decided at run time, one of:
absent       the backend's (404 if it were enforced), if the filter is certain that there is no such order`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := command(t.Context(), append([]string{"explain", "--config", file}, tt.args...)...)
			if code != exitDone || stderr != "" || !strings.Contains("\n"+stdout, tt.want+"\n") {
				t.Errorf("exit code %d, stderr %q, got\n%s\nwant%s", code, stderr, stdout, tt.want)
			}
		})
	}
}

func TestExplainGRPC(t *testing.T) {
	file := writeConfig(t, shared)
	grpc := []string{"-H", "content-type: application/grpc"}
	for line, want := range map[string]string{
		"POST /orders/042/settle":  "\nverdict      invalid\nstatus       gRPC 3 InvalidArgument\n",
		"POST /orders/1001/settle": "\nbusy         gRPC 10 Aborted, if another holds the lock past the wait\nunavailable  gRPC 14 Unavailable, if Redis cannot be asked\n",
		"POST /orders/42/settle":   "\nbusy         the backend's (gRPC 10 Aborted if it were enforced), if another holds the lock past the wait\n",
	} {
		code, stdout, stderr := command(t.Context(), append([]string{"explain", "--config", file, line}, grpc...)...)
		if code != exitDone || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, stderr %q, got\n%s\nwant%s", code, stderr, stdout, want)
		}
	}
	e, _ := explainJSON(t, nil, append([]string{"--config", file, "POST /orders/042/settle"}, grpc...)...)
	if *e.Status != 200 || *e.Possible[0].GRPC != 3 {
		t.Errorf("got %+v", e.Possible)
	}
}

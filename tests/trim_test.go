package tests

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLogWithoutATableIsTrimmed has more orders created than a log is to keep, by one that
// knows them from the log alone, as all do.
func TestLogWithoutATableIsTrimmed(t *testing.T) {
	t.Parallel()
	const orders, kept = 110_000, 50_000
	bed := bedtest.New(t)
	server, binary := bed.Redis(), bed.Build("./cmd/sidecar", false)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	log, err := changelog.New(client, "orders", func(string) {}, changelog.Options{})
	must(t, err)
	start := func(member string) *keeper {
		k := &keeper{Bed: bed, t: t}
		k.gate = bed.Gate(binary, fmt.Sprintf(`
listen: {authz: "", proc: "", http: 127.0.0.1:0, admin: 127.0.0.1:0}
redis: {addresses: [%s], member: %s}
filters: {orders: {capacity: 200_000, false_positive_rate: 0.000001}}
rules: [{name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id}, lookup: {filter: orders}}]
`, server.Addr(), member))
		return k
	}
	a := start("a")
	ids := make([]string, orders)
	for i := range ids {
		ids[i] = fmt.Sprint(1_000_000 + i)
	}
	for part := range slices.Chunk(ids, 1000) {
		must(t, log.Append(t.Context(), part...))
	}
	bedtest.Eventually(t, "the log is trimmed", func() bool {
		return client.XLen(t.Context(), "ordergate:{orders}:log").Val() < kept
	})
	b := start("b")
	absent := []string{"77", "78", "79"}
	for _, k := range []*keeper{a, b} {
		k.want("absent", absent...)
		for i := 0; i < orders; i += 5000 {
			k.want("maybe", ids[i])
		}
	}
}

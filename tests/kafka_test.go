package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const feedConfig = `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0}
redis: {addresses: [%s], member: "%s"}
filters:
  orders: {capacity: 100_000, sources: [seed, changes]}
sources:
  seed: {kind: csv, path: %s}
  changes: {kind: kafka, brokers: [%q], topic: orders, format: canal-json, table: shop.orders,
    tls: {ca: %s}, mechanism: scram-sha-512, password_file: %s, username: ordergate, id: id}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: orders}
`

// feedBed is a Kafka with a topic of orders, and what writes to it.
type feedBed struct {
	*bedtest.Bed
	t        testing.TB
	kafka    *testbed.Kafka
	redis    *testbed.Redis
	producer *kgo.Client
	seed     string
	password string // a file
}

func newFeedBed(t testing.TB) *feedBed {
	bed := bedtest.New(t)
	b := &feedBed{Bed: bed, t: t, kafka: bed.Kafka(), redis: bed.Redis(), seed: filepath.Join(t.TempDir(), "ids.csv")}
	b.password = filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(b.password, []byte(testbed.KafkaPassword+"\n"), 0o600))
	must(t, os.WriteFile(b.seed, []byte("1\n2\n"), 0o600))
	var err error
	b.producer, err = kgo.NewClient(kgo.SeedBrokers(b.kafka.Addr()), kgo.DefaultProduceTopic("orders"))
	must(t, err)
	t.Cleanup(b.producer.Close)
	must(t, b.kafka.CreateTopic(t.Context(), "orders", 3))
	return b
}

func (b *feedBed) gate(member string) *tableGate {
	b.t.Helper()
	config := fmt.Sprintf(feedConfig, b.redis.Addr(), member, b.seed, b.kafka.SecureAddr(), b.Certificates().CA, b.password)
	return asTableGate(b.t, b.Bed, b.Bed.Gate(b.Build("./cmd/sidecar", true), config))
}

// inserts writes what Canal writes of new rows.
func (b *feedBed) inserts(from, to int) {
	b.t.Helper()
	for id := from; id < to; id++ {
		message := fmt.Sprintf(`{"data":[{"id":"%d"}],"database":"shop","table":"orders","isDdl":false,"type":"INSERT"}`, id)
		must(b.t, b.producer.ProduceSync(b.t.Context(), kgo.StringRecord(message)).FirstErr())
	}
}

// TestFeed has orders in a topic, which two ordergates read in turn. What is written while none reads,
// and what Redis has lost, is there as soon as one reads again.
func TestFeed(t *testing.T) {
	t.Parallel()
	b := newFeedBed(t)
	b.inserts(1000, 1010)
	one := b.gate("one")
	all := func(from, to int, gates ...*tableGate) {
		t.Helper()
		for id := from; id < to; id++ {
			for _, g := range gates {
				g.becomes(id, "maybe")
			}
		}
	}
	all(1000, 1010, one)
	one.becomes(5, "absent")
	b.check(one, "id: id}", "id: id}", "")
	b.check(one, "id: id}", "id: number}", "no message of topic orders has a usable order ID, the first is at partition ")
	b.check(one, "username: ordergate", "username: another", "SASL_AUTHENTICATION_FAILED")
	two := b.gate("two")
	all(1000, 1010, two)

	one.Kill() // it has read
	b.inserts(1010, 1030)
	all(1010, 1030, two)

	must(t, two.Stop())
	b.inserts(1030, 1050) // no ordergate reads
	one = b.gate("one")
	all(1030, 1050, one)
	one.becomes(5, "absent")

	must(t, b.kafka.Stop())
	one.becomes(5, "absent") // nothing depends on the topic
	one.becomes(1040, "maybe")
	bedtest.Eventually(t, "it is said", func() bool { return one.said("a topic is not read: its new orders are not added") })
	must(t, b.kafka.Restart(t.Context()))

	must(t, newClient(t, b.redis.Addr()).FlushAll(t.Context()).Err()) // with the place
	b.inserts(1050, 1060)
	all(1000, 1060, one)
	bedtest.Eventually(t, "all of it is read again", func() bool { return b.logged() >= 60 })
	three := b.gate("three")
	all(1000, 1060, three)
	must(t, one.Stop())
	must(t, three.Stop())
	b.comingFromCanal()
}

// comingFromCanal has the file of docs/coming-from-canal.md, enforced, and a table beside the topic.
func (b *feedBed) comingFromCanal() {
	t := b.t
	table, dsn := mariaTable(t, b.Bed, 2), filepath.Join(t.TempDir(), "dsn")
	must(t, os.WriteFile(dsn, []byte(table.dsn), 0o600))
	text, err := os.ReadFile(filepath.Join(b.Root(), "examples", "canal", "ordergate.yaml"))
	must(t, err)
	gate := asTableGate(t, b.Bed, b.Gate(b.Build("./cmd/sidecar", true), edit(t,
		"unix:/run/ordergate/authz.sock", "127.0.0.1:0", "127.0.0.1:9194", "127.0.0.1:0", "127.0.0.1:6379", b.redis.Addr(), "127.0.0.1:9092", b.kafka.Addr(),
		"dsn_env: ORDERS_DSN", "dsn_file: "+dsn, "    mode: observe\n", "", "  orders:\n", "  orders:\n    freshness: "+bedtest.LongWindow+"\n",
	)(string(text))))
	gate.becomes(5, "absent")
	table.insert(3)
	b.inserts(1060, 1061)
	for _, id := range []int{1, 2, 3, 1000, 1060} {
		gate.becomes(id, "maybe")
	}
	gate.becomes(5, "absent")
}

// check runs "ordergate check --live" on a gate's file with another text in the place of one.
func (b *feedBed) check(g *tableGate, from, to, want string) {
	b.t.Helper()
	text, err := os.ReadFile(g.ConfigFile())
	must(b.t, err)
	file := filepath.Join(b.t.TempDir(), "ordergate.yaml")
	must(b.t, os.WriteFile(file, []byte(bedtest.Replace(string(text), from, to)), 0o600))
	out, err := exec.CommandContext(b.t.Context(), b.Build("./cmd/sidecar", true), "check", "--live", "--config", file).CombinedOutput()
	if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
		b.t.Errorf("%s: %v, want %q, got\n%s", to, err, want, out)
	}
}

// logged returns how many orders are in the change log.
func (b *feedBed) logged() int64 {
	return newClient(b.t, b.redis.Addr()).XLen(b.t.Context(), "ordergate:{orders}:log").Val()
}

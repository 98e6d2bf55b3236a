package redisson

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/condition"
	policy "github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
)

// settling is a configuration with a rule whose settlements require something of what Java
// writes.
func (s *stack) settling(require string) string {
	mode := ""
	if _, cluster := s.redis.(*redis.ClusterClient); cluster {
		mode = "mode: cluster, "
	}
	return fmt.Sprintf(`
redis: {%saddresses: [%s]}
locks: {settlement: {}}
rules:
  - name: commission-settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    settle: {lock: settlement, require: [%s]}
`, mode, s.addr, require)
}

// conditions are those of a configuration, checked as before a settlement.
type conditions struct{ set *condition.Set }

func newConditions(t *testing.T, s *stack, require string) conditions {
	t.Helper()
	c := value(config.Parse("ordergate.yaml", []byte(s.settling(require)), func(string) string { return "" }))(t)
	list, _, err := rules.Conditions(&c.Rules[0])
	must(t, err)
	checker := redislock.NewChecker(s.redis)
	t.Cleanup(checker.Close)
	return conditions{condition.New(list, condition.Options{Checker: checker, Now: time.Now})}
}

// hold reports whether the conditions hold for an order.
func (c conditions) hold(t *testing.T, id string, headers ...string) bool {
	t.Helper()
	err := c.set.Check(t.Context(), []string{id}, headers)
	if _, unmet := errors.AsType[*policy.UnmetError](err); !unmet {
		must(t, err)
	}
	return err == nil
}

var codecs = []testbed.RedissonCodec{testbed.StringCodec, testbed.DefaultCodec}

// texts are of each form that Kryo has for a string.
var texts = []string{
	"a", "ok", "closed", strings.Repeat("s", 31), strings.Repeat("s", 32), strings.Repeat("s", 33),
	strings.Repeat("s", 62), strings.Repeat("s", 63), strings.Repeat("s", 64), strings.Repeat("s", 256),
	"ä", "geschlossen für heute", "закрыто", "订单42", "😀", "a😀", strings.Repeat("ä", 63), strings.Repeat("订", 64),
}

// TestValue compares what an RBucket writes.
func TestValue(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, codec := range codecs {
		t.Run(string(codec), func(t *testing.T) {
			java := s.thread()
			for i, text := range texts {
				key := fmt.Sprintf("day:%s:%d", codec, i)
				is := newConditions(t, s, fmt.Sprintf(`{value: {key: %q, is: %s, codec: %s}}`, key, strconv.Quote(text), codec))
				isNot := newConditions(t, s, fmt.Sprintf(`{value: {key: %q, is_not: %s, codec: %s}}`, key, strconv.Quote(text), codec))
				bucket := java.Bucket(key, codec)
				if is.hold(t, "42") || !isNot.hold(t, "42") {
					t.Errorf("%q before it is written: is %v, is_not %v", text, is.hold(t, "42"), isNot.hold(t, "42"))
				}
				must(t, bucket.Set(t.Context(), text))
				if !is.hold(t, "42") || isNot.hold(t, "42") {
					t.Errorf("%q: is %v, is_not %v; Redis has %q", text, is.hold(t, "42"), isNot.hold(t, "42"), s.redis.Get(t.Context(), key).Val())
				}
				must(t, bucket.Set(t.Context(), text+"!"))
				if is.hold(t, "42") || !isNot.hold(t, "42") {
					t.Errorf("%q, and another one: is %v, is_not %v", text, is.hold(t, "42"), isNot.hold(t, "42"))
				}
			}
		})
	}
}

// TestGeo measures between members that an RGeo has added.
func TestGeo(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, codec := range codecs {
		t.Run(string(codec), func(t *testing.T) {
			key := "couriers:" + string(codec)
			near := newConditions(t, s, fmt.Sprintf(`{geo: {key: %q, member: "{id}", to: "store:{header:x-store}", within: 500m, codec: %s}}`, key, codec))
			geo := s.thread().Geo(key, codec)
			if n := value(geo.Add(t.Context(), 13.361389, 38.119556, "store:7"))(t); n != 1 {
				t.Fatalf("%d members were added", n)
			}
			for _, id := range []string{"1", "42", "6f1c2b3a-9a01-4c0e-8c7f-d5b8b1b8c7e1", strings.Repeat("7", 33), "bestellung-ä"} {
				if near.hold(t, id, "7") {
					t.Errorf("%s is near before it is anywhere", id)
				}
				value(geo.Add(t.Context(), 13.361389, 38.115556, id))(t) // 445 m south of the store
				if !near.hold(t, id, "7") {
					t.Errorf("%s is not near; Redis has %q", id, s.redis.ZRange(t.Context(), key, 0, -1).Val())
				}
				if near.hold(t, id, "8") {
					t.Errorf("%s is near a store that is nowhere", id)
				}
				value(geo.Add(t.Context(), 13.361389, 38.105556, id))(t) // 1.5 km
				if near.hold(t, id, "7") {
					t.Errorf("%s is near, and was moved away", id)
				}
			}
		})
	}
}

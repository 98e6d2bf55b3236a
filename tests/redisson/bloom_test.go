package redisson

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
)

// TestAgentBloom checks the agent's RBloomFilter by what it leaves in Redis, and by
// what it makes of what others left there.
func TestAgentBloom(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	t.Run("keys", func(t *testing.T) { bloomKeys(t, s) })
	t.Run("items", func(t *testing.T) { bloomItems(t, s) })
	t.Run("bits of others", func(t *testing.T) { bloomOfOthers(t, s) })
	t.Run("nothing there", func(t *testing.T) { bloomMissing(t, s) })
}

const (
	config1e6 = " = [expectedInsertions:1000000 falseProbability:0.01 hashIterations:7 size:9585058], stays"
	config1e3 = " = [expectedInsertions:1000 falseProbability:1.0E-4 hashIterations:13 size:19170], stays"
)

// bloomKeys compares the keys and the bits of one item. The bits were computed by
// hand as well, with another implementation of HighwayHash.
func bloomKeys(t *testing.T, s *stack) {
	for _, test := range []struct {
		name   string
		codec  testbed.RedissonCodec
		items  int64
		rate   float64
		item   string
		config string
		bits   []int64
	}{
		{"string", testbed.StringCodec, 1e6, 0.01, "order-1001", "{NAME}:config" + config1e6,
			[]int64{1484112, 3427196, 5534585, 7018697, 7477669, 7890178, 8961781}},
		{"string, not ASCII", testbed.StringCodec, 1e6, 0.01, "订单42😀", "{NAME}:config" + config1e6,
			[]int64{999516, 2495633, 4026897, 5110071, 6557677, 8053794, 9136968}},
		{"default", testbed.DefaultCodec, 1e6, 0.01, "order-1001", "{NAME}:config" + config1e6,
			[]int64{351526, 4258070, 4609596, 4968292, 5319818, 8874836, 9226362}},
		{"default, not ASCII", testbed.DefaultCodec, 1e6, 0.01, "订单42😀", "{NAME}:config" + config1e6,
			[]int64{992832, 1889030, 1958797, 2854995, 7722895, 8619093, 8688860}},
		{"default, one character", testbed.DefaultCodec, 1e6, 0.01, "a", "{NAME}:config" + config1e6,
			[]int64{1078964, 1910116, 2056366, 2887518, 5775036, 7776504, 8607656}},
		{"default, small {braces}", testbed.DefaultCodec, 1e3, 1e-4, "order-1001", "NAME:config" + config1e3,
			[]int64{842, 3532, 4680, 6186, 7334, 10866, 12372, 12678, 13520, 13826, 16210, 17358, 18864}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := t.Context()
			filter := s.thread().BloomFilter(t.Name(), test.codec)
			if !value(filter.TryInit(ctx, test.items, test.rate))(t) || value(filter.TryInit(ctx, test.items, test.rate))(t) {
				t.Error("the filter can be made other than once")
			}
			s.check(t, "made", nil, test.config) // the bits come with the first item
			if !value(filter.Add(ctx, test.item))(t) || value(filter.Add(ctx, test.item))(t) {
				t.Error("an item is new other than once")
			}
			if diff := cmp.Diff(test.bits, bits(t, s.redis, t.Name())); diff != "" {
				t.Errorf("bits (-want +got):\n%s", diff)
			}
			if ttl := s.redis.PTTL(ctx, t.Name()).Val(); ttl != -1 {
				t.Errorf("the bits end in %v", ttl)
			}
		})
	}
}

// bits returns which bits of a string are set.
func bits(t *testing.T, client redis.Cmdable, key string) []int64 {
	t.Helper()
	var set []int64
	for i, b := range value(client.Get(t.Context(), key).Bytes())(t) {
		for k := range 8 {
			if b&(0x80>>k) != 0 {
				set = append(set, int64(8*i+k))
			}
		}
	}
	return set
}

// bloomItems adds items of all sorts: each arrives as it is.
func bloomItems(t *testing.T, s *stack) {
	ids := []string{"", " ", "a", "order-1001", "a+b%20c\n", "订单42😀"}
	for _, codec := range []testbed.RedissonCodec{testbed.StringCodec, testbed.DefaultCodec} {
		t.Run(string(codec), func(t *testing.T) {
			ctx := t.Context()
			filter := s.thread().BloomFilter(t.Name(), codec)
			if !value(filter.TryInit(ctx, 1e6, 1e-4))(t) {
				t.Fatal("the filter is there already")
			}
			for i, id := range ids {
				if n := value(filter.Count(ctx))(t); n != int64(i) {
					t.Errorf("it counts %d items, want %d", n, i)
				}
				if value(filter.Contains(ctx, id))(t) {
					t.Errorf("%q is there before it is added", id)
				}
				if !value(filter.Add(ctx, id))(t) || !value(filter.Contains(ctx, id))(t) {
					t.Errorf("%q was not added", id)
				}
			}
			other := testbed.StringCodec
			if codec == other {
				other = testbed.DefaultCodec
			}
			if value(s.thread().BloomFilter(t.Name(), other).Contains(ctx, "order-1001"))(t) {
				t.Error("both codecs set the same bits")
			}
		})
	}
}

// bloomOfOthers has Java read a filter that it did not make, and add to it.
func bloomOfOthers(t *testing.T, s *stack) {
	ctx, name := t.Context(), t.Name()
	must(t, s.redis.HSet(ctx, "{"+name+"}:config", "size", 9585058, "hashIterations", 7,
		"expectedInsertions", 1000000, "falseProbability", "0.01").Err())
	set := []int64{1484112, 3427196, 5534585, 7018697, 7477669, 7890178, 8961781}
	for _, bit := range set {
		must(t, s.redis.SetBit(ctx, name, bit, 1).Err())
	}
	filter := s.thread().BloomFilter(name, testbed.StringCodec)
	if !value(filter.Contains(ctx, "order-1001"))(t) || value(filter.Contains(ctx, "order-1002"))(t) {
		t.Error("it does not contain what was added and nothing else")
	}
	if value(filter.TryInit(ctx, 1e6, 0.01))(t) {
		t.Error("it can be made again")
	}
	if value(filter.Add(ctx, "order-1001"))(t) || !value(filter.Add(ctx, "order-1002"))(t) {
		t.Error("what is there is not what is new")
	}
	after := bits(t, s.redis, name)
	for _, bit := range set {
		if !slices.Contains(after, bit) {
			t.Errorf("bit %d is no longer set", bit)
		}
	}
	if n := value(filter.Count(ctx))(t); n != 2 {
		t.Errorf("it counts %d items, want 2", n)
	}
}

// bloomMissing asks a filter that has lost its bits or its config: Redisson says
// of every item that it is not there.
func bloomMissing(t *testing.T, s *stack) {
	ctx := t.Context()
	for _, lost := range []string{t.Name() + "/bits", t.Name() + "/config"} {
		filter := s.thread().BloomFilter(lost, testbed.StringCodec)
		if !value(filter.TryInit(ctx, 1e6, 0.01))(t) || !value(filter.Add(ctx, "order-1001"))(t) {
			t.Fatal("the filter is there already")
		}
	}
	if n := s.redis.Del(ctx, t.Name()+"/bits", "{"+t.Name()+"/config}:config").Val(); n != 2 {
		t.Fatalf("%d keys lost, want 2", n)
	}
	thread := s.thread()
	for _, name := range []string{"bits", "config", "never made"} {
		filter := thread.BloomFilter(t.Name()+"/"+name, testbed.StringCodec)
		if in, err := filter.Contains(ctx, "order-1001"); in || err != nil {
			t.Errorf("%s: contains it: %v (%v), want false", name, in, err)
		}
	}
	var exception *testbed.RedissonError
	_, err := thread.BloomFilter(t.Name()+"/never made", testbed.StringCodec).Add(ctx, "order-1001")
	if !errors.As(err, &exception) {
		t.Errorf("added to a filter that was never made: %v, want an exception", err)
	}
}

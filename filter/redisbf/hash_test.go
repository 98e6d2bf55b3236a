package redisbf

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// TestRedissonPositions compares with bits that Redisson 4.7.0 was seen to set.
func TestRedissonPositions(t *testing.T) {
	got := redissonPositions(nil, StringCodec.encode("order-1001"), 9585058, 7)
	want := []int64{7477669, 5534585, 3427196, 1484112, 8961781, 7018697, 7890178}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
}

func TestKryo(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"a", "038261"},
		{"", "0381"},
		{"订单42", "0385e8aea2e58d953432"},
		{"42", "0334b2"},
		{strings.Repeat("7", 32), "03" + strings.Repeat("37", 31) + "b7"},
		{strings.Repeat("7", 33), "03a2" + strings.Repeat("37", 33)},
		{strings.Repeat("7", 63), "03c001" + strings.Repeat("37", 63)},
		{"é", "0382c3a9"},
		{"😀", "0383eda0bdedb880"}, // two halves of three bytes
	} {
		if got := hex.EncodeToString(DefaultCodec.encode(test.text)); got != test.want {
			t.Errorf("%q is %s, want %s", test.text, got, test.want)
		}
	}
}

func TestJavaDouble(t *testing.T) {
	for rate, want := range map[float64]string{0.01: "0.01", 0.001: "0.001", 0.0001: "1.0E-4", 0.00025: "2.5E-4", 1e-12: "1.0E-12", 0.5: "0.5"} {
		if got := javaDouble(rate); got != want {
			t.Errorf("%g is %s, want %s", rate, got, want)
		}
	}
}

// TestRedissonSize compares with sizes that Redisson 4.7.0 computed.
func TestRedissonSize(t *testing.T) {
	for _, test := range []struct {
		ids    uint64
		rate   float64
		size   uint64
		hashes int
	}{
		{1e6, 0.01, 9585058, 7}, {5e4, 0.001, 718879, 10}, {1e3, 1e-4, 19170, 13}, {2e8, 0.001, 2875517513, 10},
	} {
		size := redissonSize(test.ids, test.rate)
		if hashes := redissonHashes(test.ids, size); size != test.size || hashes != test.hashes {
			t.Errorf("%d IDs at %g are %d bits and %d hashes, want %d and %d", test.ids, test.rate, size, hashes, test.size, test.hashes)
		}
	}
}

// TestShardsAreIndependent checks that the IDs of one shard have bits like any, and
// that all shards get their share.
func TestShardsAreIndependent(t *testing.T) {
	const n, shards, cells = 300_000, 30, 16
	h := newHasher(Options{Secret: secret, Shards: shards})
	var perShard [shards]int
	var bits [cells]int
	for i := range n {
		id := fmt.Sprint(1_000_000 + i)
		shard := h.shard(id)
		perShard[shard]++
		if shard == 7 {
			for _, s := range h.spots(nil, id, cells, 1) {
				bits[s.at/wordBits]++
			}
		}
	}
	for shard, got := range perShard { // give or take five times the root
		if got < n/shards-500 || got > n/shards+500 {
			t.Errorf("shard %d has %d IDs, want about %d", shard, got, n/shards)
		}
	}
	for cell, got := range bits {
		if want := perShard[7] / cells; got < want-125 || got > want+125 {
			t.Errorf("cell %d has %d bits, want about %d", cell, got, want)
		}
	}
}

func TestOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	good := Options{Kind: Bitmap, Key: "k", Capacity: 1000, Secret: secret}
	for _, test := range []struct {
		name   string
		change func(*Options)
		want   []string // none: it is fine
	}{
		{"good", func(*Options) {}, nil},
		{"no kind", func(o *Options) { o.Kind = "" }, []string{`kind "" is unknown`}},
		{"everything", func(o *Options) {
			*o = Options{Kind: Bitmap, Key: "a{b}", Shards: -1, FalsePositiveRate: 2, Codec: StringCodec}
		}, []string{"braces", "-1 shards", "rate 2 is outside", "codec", "secret is missing", "capacity is 0"}},
		{"no key", func(o *Options) { o.Key = "" }, []string{"the key is missing"}},
		{"a bitmap that fits", func(o *Options) { o.Capacity = 296_000_000 }, nil},
		{"too large a bitmap", func(o *Options) { o.Capacity = 297_000_000 }, []string{"at least 2 shards of 2^32 bits", "not 1"}},
		{"thirty thousand million", func(o *Options) { o.Capacity = 30_000_000_000 }, []string{"at least 102 shards"}},
		{"in 102 shards", func(o *Options) { o.Capacity, o.Shards = 30_000_000_000, 102 }, nil},
		{"in 300 shards", func(o *Options) { o.Capacity, o.Shards = 30_000_000_000, 300 }, nil},
		{"too many", func(o *Options) { o.Capacity = 1 << 62 }, []string{"more than 16384 shards"}},
		{"a bloom that fits", func(o *Options) { o.Kind, o.Capacity = Bloom, 1<<30-reserve }, nil},
		{"too large a bloom", func(o *Options) { o.Kind, o.Capacity = Bloom, 30_000_000_000 }, []string{"at least 28 shards"}},
		{"in 28 shards", func(o *Options) { o.Kind, o.Capacity, o.Shards = Bloom, 30_000_000_000, 28 }, []string{}},
		{"redisson in shards", func(o *Options) { o.Kind, o.Shards = Redisson, 2 }, []string{"2 shards"}},
		{"too large a redisson", func(o *Options) { o.Kind, o.Capacity = Redisson, 400_000_000 }, []string{"2^32-2"}},
		{"redisson of what is there", func(o *Options) { *o = Options{Kind: Redisson, Key: "a{b}"} }, nil},
		{"redisson's codec", func(o *Options) { o.Kind, o.Codec = Redisson, "json" }, []string{`codec "json"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := good
			test.change(&opts)
			s, err := New(client, opts)
			if len(test.want) == 0 {
				must(t, err)
				s.Close()
				return
			}
			wantError(t, err, nil, test.want...)
		})
	}
	replicas := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, RouteByLatency: true})
	t.Cleanup(func() { _ = replicas.Close() })
	_, err := New(replicas, good)
	wantError(t, err, nil, "replicas")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	_, err = New(ring, good)
	wantError(t, err, nil, "Ring")
}

// TestBitmapTrailer checks that the longest parameters fit.
func TestBitmapTrailer(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	s, err := New(client, Options{Kind: Bitmap, Key: "k", Secret: secret, Capacity: 1_123_456_789_012, Shards: maxShards, FalsePositiveRate: 1.23456789012345678e-12})
	must(t, err)
	defer s.Close()
	for shard, sh := range s.kind.(*bitmap).shards {
		if len(sh.about) != aboutBytes || !strings.HasSuffix(sh.about, " \n") {
			t.Fatalf("the trailer of shard %d is %q", shard, sh.about)
		}
	}
}

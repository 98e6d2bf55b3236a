package redisbf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Codec is how Redisson turns a string into bytes.
type Codec string

// The codecs of strings.
const (
	// StringCodec is UTF-8, Redisson's StringCodec.
	StringCodec Codec = "string"
	// DefaultCodec is Kryo5, what a Java service has that chose no codec.
	DefaultCodec Codec = "default"
	// LongCodec is Kryo5 for a filter of Long. A text that is no Long, such as that of a mark, is a
	// string.
	LongCodec Codec = "long"
)

const (
	// maxBitmapBits is what a string of Redis holds, 512 MiB.
	maxBitmapBits = 1 << 32
	// maxRedissonBits is the limit of Redisson 4.7.
	maxRedissonBits = 1<<32 - 2
	// maxBloomCapacity is the limit of RedisBloom since 2.8.
	maxBloomCapacity = 1 << 30
	// maxShards is the number of slots of a cluster: more would share them.
	maxShards = 16384
	// minRate asks for 40 hashes and 58 bits an ID.
	minRate = 1e-12
)

// Options are the settings of a [Set]. Every process that uses a set has to give
// the same ones.
type Options struct {
	Kind Kind
	// Key is what the keys in Redis begin with: "<Key>:{<shard>}". It has no braces.
	// For the kind Redisson it is the filter's name, as in getBloomFilter.
	Key string
	// Capacity is the number of IDs that the set is made for. For the kind Redisson
	// 0 takes the capacity and the rate from the filter that is there.
	Capacity uint64
	// FalsePositiveRate is the share of absent IDs that pass at capacity, 1e-12 or
	// more and below 1; default 0.001.
	FalsePositiveRate float64
	// Shards is how many parts the set has, default 1. The keys of one part are in
	// one slot of a cluster. An ID is in one part only, chosen by a hash of its own.
	Shards int
	// Secret keys the hashes, so that no client can craft IDs that pass. The kinds
	// Bloom and Bitmap do not go without. In the kind Redisson it keys the marks.
	Secret [16]byte
	// Codec is for the kind Redisson; default [DefaultCodec].
	Codec Codec
}

// EnsureDefaults fills in what is unset.
func (o *Options) EnsureDefaults() {
	if o.FalsePositiveRate == 0 && (o.Kind != Redisson || o.Capacity != 0) {
		o.FalsePositiveRate = 0.001
	}
	o.Shards = cmp.Or(o.Shards, 1)
	if o.Kind == Redisson && o.Codec == "" {
		o.Codec = DefaultCodec
	}
}

// Validate reports every option that is impossible.
func (o Options) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch o.Kind {
	case Bloom, Bitmap:
		if strings.ContainsAny(o.Key, "{}") {
			fail("key %q has braces, which would put all shards in one slot", o.Key)
		}
		if o.Secret == ([16]byte{}) {
			fail("the secret is missing")
		}
		if o.Codec != "" {
			fail("a codec is for the kind %s only", Redisson)
		}
		if o.Capacity == 0 {
			fail("capacity is 0, must be at least 1")
		}
	case Redisson:
		if o.Codec != StringCodec && o.Codec != DefaultCodec && o.Codec != LongCodec {
			fail("codec %q is unknown: want %s, %s or %s", o.Codec, StringCodec, DefaultCodec, LongCodec)
		}
		if o.Shards != 1 {
			fail("%d shards: the kind %s has 1", o.Shards, Redisson)
		}
	default:
		return fmt.Errorf("kind %q is unknown: want %s, %s or %s", o.Kind, Bloom, Bitmap, Redisson)
	}
	if o.Key == "" {
		fail("the key is missing")
	}
	if o.Shards < 1 || o.Shards > maxShards {
		fail("%d shards: want 1 to %d", o.Shards, maxShards)
	}
	adopts := o.Kind == Redisson && o.Capacity == 0 && o.FalsePositiveRate == 0
	// Written so that NaN is refused as well.
	if !adopts && !(o.FalsePositiveRate >= minRate && o.FalsePositiveRate < 1) {
		fail("false positive rate %g is outside [%g, 1)", o.FalsePositiveRate, minRate)
	}
	if len(errs) == 0 && !adopts {
		errs = append(errs, o.fits())
	}
	return errors.Join(errs...)
}

// LeastShards returns the least number of shards that a set of so many IDs has to
// have. The error says that no number will do, or what else is impossible.
func (o Options) LeastShards() (int, error) {
	o.EnsureDefaults()
	o.Shards = 1
	if err := o.Validate(); err == nil || o.Kind == Redisson {
		return 1, err
	}
	needed := int(math.Ceil(o.needed()))
	// The headroom of a shard grows as shards do, so the estimate may be a few short.
	for o.Shards = max(1, min(needed, maxShards)); o.Shards < maxShards && o.Validate() != nil; o.Shards++ {
	}
	return o.Shards, o.Validate()
}

// needed estimates how many shards do.
func (o Options) needed() float64 {
	if o.Kind == Bloom {
		return float64(o.Capacity) / (maxBloomCapacity - reserve)
	}
	_, each := layout(o.FalsePositiveRate)
	return float64(o.Capacity) * each / (maxBitmapBits - trailerBits - wordBits)
}

// fits reports whether the shards are small enough, and how many would do.
func (o Options) fits() error {
	ids := float64(o.Capacity)
	bits := ids * bitsPerID(o.FalsePositiveRate)
	if o.Kind == Bitmap {
		_, each := layout(o.FalsePositiveRate)
		bits = ids * each
	}
	var needed float64
	var limit string
	switch o.Kind {
	case Bloom:
		if shardCapacity(o.Capacity, o.Shards) <= maxBloomCapacity-reserve {
			return nil
		}
		// The headroom of shardCapacity is below a thousandth at this size.
		needed, limit = ids/((maxBloomCapacity-reserve)*0.999), "2^30 IDs, RedisBloom's limit"
	case Bitmap:
		if bits/float64(o.Shards) <= maxBitmapBits-trailerBits-wordBits {
			return nil
		}
		needed, limit = bits/(maxBitmapBits-trailerBits-wordBits), "2^32 bits, Redis's limit"
	case Redisson:
		if bits <= maxRedissonBits {
			return nil
		}
		return fmt.Errorf("capacity %d at a rate of %g needs %.3g bits, and Redisson has at most 2^32-2: lower the capacity or raise the rate",
			o.Capacity, o.FalsePositiveRate, bits)
	}
	if needed = math.Ceil(needed); needed > maxShards {
		return fmt.Errorf("capacity %d at a rate of %g needs more than %d shards", o.Capacity, o.FalsePositiveRate, maxShards)
	}
	return fmt.Errorf("capacity %d at a rate of %g needs at least %.0f shards of %s, not %d",
		o.Capacity, o.FalsePositiveRate, needed, limit, o.Shards)
}

// bitsPerID is what a Bloom filter takes that is half full at its capacity:
// m/n = -ln p / (ln 2)^2 (Bloom, "Space/Time Trade-offs in Hash Coding with
// Allowable Errors", 1970).
func bitsPerID(rate float64) float64 { return -math.Log(rate) / (math.Ln2 * math.Ln2) }

// hashesFor is the number of bits an ID for which the rate is least, m/n ln 2.
func hashesFor(bits, ids float64) int { return max(1, int(math.Round(bits/ids*math.Ln2))) }

// shardCapacity is how many IDs one shard of a kind has to take that refuses more.
// Of n IDs thrown into s shards one has more than n/s plus six times the root of it
// by a chance of s in a thousand million (normal approximation).
func shardCapacity(ids uint64, shards int) uint64 {
	each := perShard(ids, shards)
	if shards == 1 {
		return each
	}
	return each + uint64(math.Ceil(6*math.Sqrt(float64(each))))
}

// perShard is how many IDs a shard has on average, rounded up.
func perShard(ids uint64, shards int) uint64 {
	n := uint64(shards)
	each := ids / n
	if ids%n != 0 {
		each++
	}
	return each
}

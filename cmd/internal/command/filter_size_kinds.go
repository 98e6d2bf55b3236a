package command

import (
	"fmt"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/loader"

	"github.com/ordergate/ordergate/internal/admin"
)

// sizing is what filter size prints as JSON.
type sizing struct {
	IDs               uint64        `json:"ids"`
	FalsePositiveRate float64       `json:"false_positive_rate"` // as requested
	Processes         int           `json:"processes"`
	Replicas          int           `json:"replicas"`
	MemoryLimit       uint64        `json:"memory_limit_bytes"`
	Sample            *sampleReport `json:"sample"` // null: none was given
	Kinds             []kindSize    `json:"kinds"`
	Recommended       *recommended  `json:"recommended"`

	segments bool
}

// kindSize is the size of a filter of one kind. With a problem, the numbers are 0.
type kindSize struct {
	Kind         string     `json:"kind"`
	Layout       *string    `json:"layout"`  // of kind local
	Problem      *string    `json:"problem"` // why this kind is impossible, or which input is missing
	ProcessBytes uint64     `json:"process_bytes"`
	RedisBytes   uint64     `json:"redis_bytes"` // of all shards, without replicas
	BytesPerID   float64    `json:"bytes_per_id"`
	Hashes       *int       `json:"hashes"` // bits that an ID sets; null: kind exact
	Shards       *int       `json:"shards"` // null: a kind in memory
	RoundTrips   roundTrips `json:"round_trips"`
	// FalsePositiveRate is the expected rate. Only for kind redisson it is the least rate, and
	// FalsePositiveRateMost is greater, because Redisson's hashes depend on each other.
	FalsePositiveRate     float64 `json:"false_positive_rate"`
	FalsePositiveRateMost float64 `json:"false_positive_rate_most"`
	TotalBytes            uint64  `json:"total_bytes"` // of all processes, primaries and replicas
}

// roundTrips is the number of round trips to Redis that a lookup waits for. It is 0 for a
// filter in memory, which reads the change log in the background.
type roundTrips struct {
	Least int `json:"least"`
	Most  int `json:"most"`
}

// redissonExcess holds the least and the greatest factor by which the rate of Redisson's
// filters exceeds the formula: see [redisbf.Redisson].
var redissonExcess = [2]float64{1.1, 2.1}

// sizes computes the size of every kind and the recommendation.
func (q *sizeRequest) sizes() *sizing {
	s := &sizing{
		IDs: q.ids, FalsePositiveRate: q.rate, Processes: q.processes, Replicas: q.replicas,
		MemoryLimit: q.limit, Sample: q.sample, segments: q.segments,
		Kinds: []kindSize{
			q.local(bloom.Blocked, q.rate), q.local(bloom.Classic, q.rate), q.exact(),
			q.redis(redisbf.Bloom), q.redis(redisbf.Bitmap), q.redis(redisbf.Redisson), q.layered(),
		},
	}
	for i := range s.Kinds {
		q.sumUp(&s.Kinds[i])
	}
	s.Recommended = q.recommend(s.Kinds)
	return s
}

func (q *sizeRequest) local(layout bloom.Layout, rate float64) kindSize {
	k := kindSize{Kind: config.FilterLocal, Layout: new(string(layout))}
	size, err := bloom.Params{Capacity: q.ids, FalsePositiveRate: rate, Layout: layout}.Size()
	if err != nil {
		k.Problem = new(err.Error())
		return k
	}
	k.ProcessBytes, k.Hashes = size.Bytes, &size.Hashes
	k.passes(size.RateAt(q.ids), 1)
	return k
}

func (q *sizeRequest) exact() kindSize {
	k := kindSize{Kind: config.FilterExact}
	switch {
	case q.sample == nil:
		k.Problem = new("for numbers that lie close together: --sample shows whether they do")
	case q.sample.NotNumeric > 0:
		k.Problem = new(fmt.Sprintf("%s of %s IDs in the sample are no numbers below 2^64 without leading zeros",
			admin.Grouped(uint64(q.sample.NotNumeric)), admin.Grouped(uint64(q.sample.IDs))))
	default:
		k.ProcessBytes = uint64(q.sample.advice.Exact * float64(q.ids))
	}
	return k
}

func (q *sizeRequest) redis(kind redisbf.Kind) kindSize {
	k := kindSize{Kind: string(kind), RoundTrips: roundTrips{1, 1}}
	o := redisbf.Options{
		Kind: kind, Key: "size", Capacity: q.ids, FalsePositiveRate: q.rate, Shards: q.shards,
		Secret: [16]byte{1}, // the size does not depend on it
	}
	var err error
	if kind == redisbf.Redisson || q.shards == 0 {
		o.Shards, err = o.LeastShards()
	}
	var size redisbf.Size
	if err == nil {
		size, err = o.Size()
	}
	if err != nil {
		k.Problem = new(err.Error())
		return k
	}
	k.RedisBytes, k.Hashes, k.Shards = size.Bytes, &size.Hashes, &o.Shards
	k.passes(size.Rate, 1)
	if kind == redisbf.Redisson {
		k.passes(size.Rate*redissonExcess[0], redissonExcess[1]/redissonExcess[0])
	}
	return k
}

// layered sizes a local filter in front of a bitmap in Redis. A lookup only queries the
// bitmap for an ID that the local filter lacks. An ID that passes either filter passes, so
// the local filter has a lower rate.
func (q *sizeRequest) layered() kindSize {
	k, first := q.redis(redisbf.Bitmap), q.local(bloom.Blocked, q.rate*loader.MemoryShare)
	k.Kind = config.FilterLayered
	if first.Problem != nil {
		k.Problem = first.Problem
	}
	if k.Problem != nil {
		return k
	}
	k.ProcessBytes, k.RoundTrips.Least = first.ProcessBytes, 0
	k.passes(1-(1-first.FalsePositiveRate)*(1-k.FalsePositiveRate), 1)
	return k
}

// passes sets the rate, and its upper bound to times that rate.
func (k *kindSize) passes(rate, times float64) {
	k.FalsePositiveRate, k.FalsePositiveRateMost = rate, rate*times
}

// sumUp computes the bytes per ID and in total. It clears the numbers of a kind with a
// problem.
func (q *sizeRequest) sumUp(k *kindSize) {
	if k.Problem != nil {
		*k = kindSize{Kind: k.Kind, Layout: k.Layout, Problem: k.Problem}
		return
	}
	k.BytesPerID = float64(k.ProcessBytes+k.RedisBytes) / float64(q.ids)
	k.TotalBytes = k.ProcessBytes*uint64(q.processes) + k.RedisBytes*uint64(1+q.replicas)
}

// name returns the kind, with the layout for kind local.
func (k *kindSize) name() string {
	if k.Layout != nil {
		return k.Kind + ", " + *k.Layout
	}
	return k.Kind
}

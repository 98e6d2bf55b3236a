package redisbf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/redisbatch"
)

var (
	redissonCreate = compose("redisson_create")
	redissonAdd    = compose("redisson", "redisson_add")
	redissonUnmark = compose("redisson", "marks", "unmark")
	redissonMark   = compose("redisson", "marks", "mark")
)

// redisson is the kind Redisson: a bitmap, and a hash beside it with its
// parameters. Our marks in it are items like any other.
type redisson struct {
	set          *Set
	name, config string
	filter       atomic.Pointer[redissonFilter] // nil until opened
}

// redissonFilter is the one that was found. Its configuration is compared in every
// query.
type redissonFilter struct {
	size   uint64 // bits
	hashes int
	ids    uint64
	rate   float64
	marks  *marks
}

func newRedisson(s *Set) *redisson {
	r := &redisson{set: s, name: s.opts.Key}
	// As Redisson's suffixName does.
	if strings.Contains(r.name, "{") {
		r.config = r.name + ":config"
	} else {
		r.config = "{" + r.name + "}:config"
	}
	return r
}

func (r *redisson) keys(int) []string { return []string{r.name, r.config} }
func (r *redisson) atomic() bool      { return true }

func (r *redisson) rewind(shard int) bool {
	f := r.filter.Load()
	return f != nil && f.marks.rewind(shard)
}

func (r *redisson) most() int {
	if f := r.filter.Load(); f != nil {
		return idsFor(f.hashes)
	}
	return 1
}

// positions appends the bits of items.
func (r *redisson) positions(to []int64, f *redissonFilter, items []string) []int64 {
	for _, item := range items {
		to = redissonPositions(to, r.set.opts.Codec.encode(item), f.size, f.hashes)
	}
	return to
}

func (r *redisson) queueLookup(p redis.Pipeliner, _ int, ids []string) readAnswers {
	f := r.filter.Load()
	if f == nil {
		return func([]presence.Answer) (shardState, error) { return incomplete, errNotOpen }
	}
	g := f.marks.of(0)
	at := r.positions(make([]int64, 0, (len(g.items)+len(ids))*f.hashes), f, g.items)
	at = r.positions(at, f, ids)
	config := p.HMGet(context.Background(), r.config, "size", "hashIterations")
	cmd := redis.NewIntSliceCmd(context.Background(), readBits(r.name, at)...)
	_ = p.Process(context.Background(), cmd) // only queued
	return func(answers []presence.Answer) (shardState, error) {
		has, err := cmd.Result()
		if err == nil {
			err = config.Err()
		}
		if err != nil {
			return incomplete, err
		}
		if !f.is(config.Val()) {
			return incomplete, nil // Java made another one, or it is gone
		}
		if len(has) != len(at) {
			return incomplete, fmt.Errorf("%d values in an answer of %d", len(has), len(at))
		}
		present := make([]bool, len(has)/f.hashes)
		for i := range present {
			present[i] = !slices.Contains(has[i*f.hashes:(i+1)*f.hashes], 0)
		}
		return f.marks.answers(0, g, present, answers)
	}
}

// readBits is a command that reads bits. Pointers to their positions go into the
// arguments without a copy of their own.
func readBits(key string, at []int64) []any {
	args := append(make([]any, 0, 2+3*len(at)), "bitfield_ro", key)
	for i := range at {
		args = append(args, wordGet, wordBit, &at[i])
	}
	return args
}

// is compares a configuration, its size and hashIterations.
func (f *redissonFilter) is(config []any) bool {
	return len(config) == 2 && config[0] == strconv.FormatUint(f.size, 10) && config[1] == strconv.Itoa(f.hashes)
}

func (r *redisson) add(_ int, ids []string) ([]*call, error) {
	f := r.filter.Load()
	if f == nil {
		return nil, errNotOpen
	}
	return []*call{r.call(redissonAdd(), f, 0, 0, ids, func(reply any) error {
		if reply != int64(1) {
			return ErrGone
		}
		return nil
	})}, nil
}

func (r *redisson) unmark(_ int, load string, end *int64) (*call, error) {
	f := r.filter.Load()
	if f == nil {
		return nil, errNotOpen
	}
	items, read := f.marks.unmarkItems(0, load, end)
	return r.call(redissonUnmark(), f, f.marks.n, lookAhead, items, read), nil
}

func (r *redisson) mark(_ int, load string, end int64) (*call, error) {
	f := r.filter.Load()
	if f == nil {
		return nil, errNotOpen
	}
	items, read := f.marks.markItems(0, load, end)
	return r.call(redissonMark(), f, f.marks.n, 0, items, read), nil
}

// call returns a call of a script that begins with redisson.lua.
func (r *redisson) call(script *redisbatch.Script, f *redissonFilter, n, generations int, items []string, read func(any) error) *call {
	at := r.positions(nil, f, items)
	args := append(make([]any, 0, 4+len(at)), n, generations)
	for i := range at {
		args = append(args, &at[i])
	}
	return &call{script: script, keys: []string{r.config, r.name}, args: append(args, f.size, f.hashes), read: read}
}

func (r *redisson) create(shard int, made *bool) *call {
	o := r.set.opts
	size := redissonSize(o.Capacity, o.FalsePositiveRate)
	return r.set.creation(redissonCreate(), shard, []string{r.config, r.name}, made,
		size, redissonHashes(o.Capacity, size), o.Capacity, javaDouble(o.FalsePositiveRate))
}

// redissonSize and redissonHashes are what Redisson computes. Should its logarithm
// differ in the last bit, nothing is lost: what it computed is in the
// configuration, and is taken from there.
func redissonSize(ids uint64, rate float64) uint64 {
	return max(1, uint64(float64(ids)*bitsPerID(rate)))
}

func redissonHashes(ids, size uint64) int { return hashesFor(float64(size), float64(ids)) }

// javaDouble writes a rate as Java's Double.toString does.
func javaDouble(rate float64) string {
	if rate >= 1e-3 { // and below 1
		return strconv.FormatFloat(rate, 'f', -1, 64)
	}
	digits, exponent, _ := strings.Cut(strconv.FormatFloat(rate, 'e', -1, 64), "e")
	if !strings.Contains(digits, ".") {
		digits += ".0"
	}
	e, _ := strconv.Atoi(exponent) // which it is
	return digits + "E" + strconv.Itoa(e)
}

// inspect takes the filter that is there, the first time; later it has to be the
// same.
func (r *redisson) inspect(ctx context.Context, _, _ int) ([]found, error) {
	var name, config *redis.StatusCmd
	var values *redis.MapStringStringCmd
	var length *redis.IntCmd
	redisbatch.EnsureErrors(r.set.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		name, config = p.Type(ctx, r.name), p.Type(ctx, r.config)
		values = p.HGetAll(ctx, r.config)
		length = p.StrLen(ctx, r.name)
		return nil
	}))
	if err := errors.Join(name.Err(), config.Err()); err != nil {
		return nil, lookedAt(r.name, err)
	}
	problem := func(format string, args ...any) ([]found, error) {
		return []found{{problem: fmt.Sprintf(format, args...)}}, nil
	}
	bits := name.Val() != "none"
	if bits && name.Val() != "string" {
		return problem("%s is of the type %s, not string", r.name, name.Val())
	}
	switch is := config.Val(); {
	case is == "none" && bits:
		return problem("%s is there and %s is not: it is no filter, or has lost its configuration", r.name, r.config)
	case is == "none" && r.set.opts.Capacity == 0:
		return problem("%s is missing, and no capacity is set to make it with", r.config)
	case is == "none":
		return []found{{missing: true}}, nil
	case is != "hash":
		return problem("%s is of the type %s, not hash", r.config, is)
	}
	fields, err := values.Result()
	if err != nil {
		return nil, lookedAt(r.config, err)
	}
	f, err := readConfig(fields)
	if n := uint64(length.Val()); err == nil && n > (f.size+7)/8 {
		return problem("%s has %d bytes, more than its %d bits", r.name, n, f.size)
	}
	if err == nil {
		err = r.adopt(f)
	}
	if err != nil {
		return problem("%s %v", r.config, err)
	}
	return []found{{}}, nil
}

// adopt uses a filter that is as the options want it.
func (r *redisson) adopt(f *redissonFilter) error {
	o := r.set.opts
	switch {
	case o.Capacity != 0 && f.ids != o.Capacity:
		return fmt.Errorf("has expectedInsertions %d, not %d", f.ids, o.Capacity)
	case o.Capacity != 0 && f.rate != o.FalsePositiveRate:
		return fmt.Errorf("has falseProbability %g, not %g", f.rate, o.FalsePositiveRate)
	}
	of := fmt.Sprintf("redisson size=%d hashes=%d", f.size, f.hashes)
	if o.Codec == LongCodec { // whose marks are those of the default codec otherwise
		of += " elements=long"
	}
	f.marks = newMarks(r.set, of, max(f.rate, minRate))
	if r.filter.CompareAndSwap(nil, f) {
		return nil
	}
	if old := r.filter.Load(); old.size != f.size || old.hashes != f.hashes {
		return fmt.Errorf("has size %d and hashIterations %d, not %d and %d as when it was opened",
			f.size, f.hashes, old.size, old.hashes)
	}
	return nil
}

// maxRedissonHashes is what Redisson computes for a rate of 0.
const maxRedissonHashes = 1100

func readConfig(fields map[string]string) (*redissonFilter, error) {
	size, err := strconv.ParseUint(fields["size"], 10, 64)
	if err != nil || size == 0 || size > maxRedissonBits {
		return nil, fmt.Errorf("has a size of %q", fields["size"])
	}
	hashes, err := strconv.Atoi(fields["hashIterations"])
	if err != nil || hashes < 1 || hashes > maxRedissonHashes {
		return nil, fmt.Errorf("has hashIterations %q", fields["hashIterations"])
	}
	ids, err := strconv.ParseUint(fields["expectedInsertions"], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("has expectedInsertions %q", fields["expectedInsertions"])
	}
	rate, err := strconv.ParseFloat(fields["falseProbability"], 64)
	if err != nil || !(rate >= 0 && rate < 1) || math.Signbit(rate) {
		return nil, fmt.Errorf("has falseProbability %q", fields["falseProbability"])
	}
	return &redissonFilter{size: size, hashes: hashes, ids: ids, rate: rate}, nil
}

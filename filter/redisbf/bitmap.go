package redisbf

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/redisbatch"
)

// A bitmap is one string: the bits (see spots), then a trailer of 256 bytes, which is
// lost when they are.
//
//	8 bytes    the seal: a keyed hash of the key, all parameters, and "loading" or "whole"
//	8 bytes    the name of the load that began last
//	240 bytes  the parameters as text, filled up with blanks
const (
	sealBytes    = 8
	aboutBytes   = 240
	trailerBytes = sealBytes + loadBytes + aboutBytes
	trailerBits  = 8 * trailerBytes
)

var (
	bitmapCreate = compose("bitmap_create")
	bitmapAdd    = compose("bitmap_add")
	bitmapUnmark = compose("bitmap_unmark")
	bitmapMark   = compose("bitmap_mark")
)

// bitmap is the kind Bitmap.
type bitmap struct {
	set    *Set
	bits   uint64 // of one shard, a multiple of 64
	words  int    // that an ID has
	shards []bitmapShard
}

type bitmapShard struct {
	key            []string
	about          string // what the trailer ends with
	loading, whole int64  // the seals
}

func newBitmap(s *Set) *bitmap {
	o := s.opts
	b := &bitmap{set: s, shards: make([]bitmapShard, o.Shards)}
	b.words, b.bits = bitmapLayout(o)
	for i := range b.shards {
		key := fmt.Sprintf("%s:{%d}", o.Key, i)
		about := fmt.Sprintf("ordergate bitmap version=1 capacity=%d rate=%g shards=%d shard=%d secret=%s bits=%d words=%d",
			o.Capacity, o.FalsePositiveRate, o.Shards, i, s.hash.fingerprint(), b.bits, b.words)
		b.shards[i] = bitmapShard{
			key:     []string{key},
			about:   about + strings.Repeat(" ", aboutBytes-1-len(about)) + "\n",
			loading: s.hash.mark("loading " + key + " " + about),
			whole:   s.hash.mark("whole " + key + " " + about),
		}
	}
	return b
}

func (b *bitmap) keys(shard int) []string { return b.shards[shard].key }
func (b *bitmap) rewind(int) bool         { return false }
func (b *bitmap) atomic() bool            { return false }
func (b *bitmap) most() int               { return idsFor(2 * b.words) }

// idsFor is how many IDs of so many bits one command or script has. Lua hands over
// at most 8,000 arguments at a time (LUAI_MAXCSTACK), and adding takes 4 a bit.
func idsFor(bits int) int { return min(max(1, 1500/bits), maxIDs) }

// The words of BITFIELD, each converted to an interface once.
var (
	wordGet any = "get"
	wordBit any = "u1"
	wordAll any = "i64"
)

// spots returns those of the IDs, one after the other.
func (b *bitmap) spots(ids []string) []spot {
	spots := make([]spot, 0, len(ids)*b.words)
	for _, id := range ids {
		spots = b.set.hash.spots(spots, id, b.bits/wordBits, b.words)
	}
	return spots
}

func (b *bitmap) queueLookup(p redis.Pipeliner, shard int, ids []string) readAnswers {
	sh := &b.shards[shard]
	spots := b.spots(ids)
	// The seal is read by the same command as the bits. Pointers to positions go
	// into the arguments without a copy of their own.
	args := append(make([]any, 0, 5+3*len(spots)), "bitfield_ro", &sh.key[0], wordGet, wordAll, b.bits)
	for i := range spots {
		args = append(args, wordGet, wordAll, &spots[i].at)
	}
	cmd := redis.NewIntSliceCmd(context.Background(), args...)
	_ = p.Process(context.Background(), cmd) // only queued
	return func(answers []presence.Answer) (shardState, error) {
		values, err := cmd.Result()
		if err != nil {
			return incomplete, err
		}
		if len(values) != 1+len(spots) {
			return incomplete, fmt.Errorf("%d values in an answer of %d", len(values), 1+len(spots))
		}
		state := incomplete
		switch values[0] {
		case sh.whole:
			state = complete
		case sh.loading:
		default:
			return incomplete, nil // the string is something else
		}
		values = values[1:]
		for i := range answers {
			has := true
			for j := i * b.words; j < (i+1)*b.words; j++ {
				has = has && values[j]&spots[j].bits == spots[j].bits
			}
			answers[i] = judge(has, state)
		}
		return state, nil
	}
}

func (b *bitmap) add(shard int, ids []string) ([]*call, error) {
	args := b.sealed(shard)
	for _, s := range b.spots(ids) {
		first, second := s.positions()
		args = append(args, first, second)
	}
	return []*call{b.call(bitmapAdd(), shard, args, ErrGone)}, nil
}

func (b *bitmap) unmark(shard int, load string, _ *int64) (*call, error) {
	return b.call(bitmapUnmark(), shard, append(b.sealed(shard), load), ErrGone), nil
}

func (b *bitmap) mark(shard int, load string, _ int64) (*call, error) {
	return b.call(bitmapMark(), shard, append(b.sealed(shard), load), ErrLoadLost), nil
}

// sealed are the arguments that every script has: where the seal is, and what it
// may be.
func (b *bitmap) sealed(shard int) []any {
	sh := &b.shards[shard]
	return []any{b.bits / 8, seal(sh.loading), seal(sh.whole)}
}

// seal is a seal as it is stored, in the byte order of BITFIELD.
func seal(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

// call calls a script that answers 1, or 0 when there is nothing it may change.
func (b *bitmap) call(script *redisbatch.Script, shard int, args []any, refused error) *call {
	return &call{script: script, keys: b.shards[shard].key, args: args, shard: shard, read: func(reply any) error {
		if reply != int64(1) {
			return refused
		}
		return nil
	}}
}

func (b *bitmap) create(shard int, made *bool) *call {
	sh := &b.shards[shard]
	trailer := seal(sh.loading) + strings.Repeat(" ", loadBytes) + sh.about
	return b.set.creation(bitmapCreate(), shard, sh.key, made, b.bits/8, trailer)
}

func (b *bitmap) inspect(ctx context.Context, from, to int) ([]found, error) {
	types := make([]*redis.StatusCmd, to-from)
	ends := make([]*redis.StringCmd, to-from)
	lengths := make([]*redis.IntCmd, to-from)
	redisbatch.EnsureErrors(b.set.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range types {
			key := b.shards[from+i].key[0]
			types[i] = p.Type(ctx, key)
			ends[i] = p.GetRange(ctx, key, -trailerBytes, -1)
			lengths[i] = p.StrLen(ctx, key)
		}
		return nil
	}))
	states := make([]found, to-from)
	for i := range states {
		sh, state := &b.shards[from+i], &states[i]
		is, err := types[i].Result()
		if err != nil {
			return nil, lookedAt(sh.key[0], err)
		}
		if is == "none" {
			state.missing = true
			continue
		}
		if is != "string" {
			state.problem = fmt.Sprintf("%s is of the type %s, not string", sh.key[0], is)
			continue
		}
		end, err := ends[i].Result()
		if err == nil {
			err = lengths[i].Err()
		}
		if err != nil {
			return nil, lookedAt(sh.key[0], err)
		}
		if differs := sh.differs(end, lengths[i].Val(), b.bits); differs != "" {
			state.problem = sh.key[0] + " " + differs
			state.foreign = strings.HasPrefix(differs, "was made with secret=")
		}
	}
	return states, nil
}

// secretLast returns the words of a trailer with that of the secret behind all
// others.
func secretLast(words []string) []string {
	secret := func(word string) bool { return strings.HasPrefix(word, "secret=") }
	i := slices.IndexFunc(words, secret)
	if i < 0 {
		return words
	}
	return append(slices.Delete(slices.Clone(words), i, i+1), words[i])
}

// differs says what is different in a string with this end, or nothing.
func (sh *bitmapShard) differs(end string, length int64, bits uint64) string {
	if len(end) != trailerBytes || !strings.HasPrefix(end[sealBytes+loadBytes:], "ordergate bitmap ") {
		return "is a string, but not a bitmap of ordergate's"
	}
	has := secretLast(strings.Fields(end[sealBytes+loadBytes:]))
	for i, want := range secretLast(strings.Fields(sh.about)) {
		if i >= len(has) || has[i] != want {
			other := ""
			if i < len(has) {
				other = has[i]
			}
			return fmt.Sprintf("was made with %s, not %s", other, want)
		}
	}
	if uint64(length) != bits/8+trailerBytes {
		return fmt.Sprintf("has %d bytes, not %d", length, bits/8+trailerBytes)
	}
	if !strings.HasPrefix(end, seal(sh.whole)) && !strings.HasPrefix(end, seal(sh.loading)) {
		return "has a wrong seal: it was renamed, or made with another secret"
	}
	return ""
}

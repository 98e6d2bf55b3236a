package redisbf

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/ordergate/ordergate/internal/presence"
)

// marks tell whether a filter is whole, by items in the filter itself: whatever
// becomes of its bits becomes of them. An item cannot be taken out, so there are
// generations of them: in generation g the filter is whole if it has the items
// whole(g) and not over(g). A load has items of its own, by which MarkWhole sees
// that the filter it began with is still there.
//
// A single item may be in a filter by chance, with its rate of false positives.
// Several are with a power of it.
type marks struct {
	set   *Set
	about string // the filter's parameters
	n     int    // items that make one mark
	now   []atomic.Pointer[generation]
}

// generation is what a query asks for before its IDs.
type generation struct {
	number int64
	items  []string // whole, then over; n each
}

const (
	// chance is the probability of a mark that no load made, in a filter at its
	// capacity. It is a millionth of what would do, as others may fill a filter of
	// Redisson past that: at twenty times its rate of 1% the chance is 6e-5.
	chance = 1e-12
	// maxMarks are for a filter whose rate is next to 1.
	maxMarks = 64
	// maxGenerations bounds how many are looked at, one after the other. In a filter
	// with nearly all bits set every mark is there.
	maxGenerations = 1024
	// lookAhead is how many generations one script looks at.
	lookAhead = 8
)

// errBehind says that more loads began than this process knew of.
var errBehind = errors.New("other loads began")

func newMarks(s *Set, about string, rate float64) *marks {
	n := int(math.Ceil(math.Log(chance) / math.Log(rate)))
	m := &marks{set: s, about: about, n: min(max(n, 1), maxMarks), now: make([]atomic.Pointer[generation], s.opts.Shards)}
	for shard := range m.now {
		m.now[shard].Store(m.generation(shard, 0))
	}
	return m
}

func (m *marks) generation(shard int, number int64) *generation {
	items := m.items(nil, shard, fmt.Sprintf("whole %d", number))
	return &generation{number, m.items(items, shard, fmt.Sprintf("over %d", number))}
}

// items appends those of one mark.
func (m *marks) items(to []string, shard int, what string) []string {
	for i := range m.n {
		to = append(to, m.set.hash.markItem(fmt.Sprintf("%s: %s %s/%d/%d", what, m.about, m.set.opts.Key, shard, i)))
	}
	return to
}

// of returns the generation that is known.
func (m *marks) of(shard int) *generation { return m.now[shard].Load() }

// advance notes that all generations before a number are over.
func (m *marks) advance(shard int, number int64) {
	for {
		old := m.now[shard].Load()
		if old.number >= number || m.now[shard].CompareAndSwap(old, m.generation(shard, number)) {
			return
		}
	}
}

// judge judges the items of a generation, as they were found. If it is over, the
// next query is about the next one, and so on to the last: until then the
// filter is taken for one that is not whole, which it was, for a moment at least.
func (m *marks) judge(shard int, g *generation, has []bool) shardState {
	switch {
	case all(has[m.n:]):
		m.advance(shard, g.number+1)
		return superseded
	case all(has[:m.n]):
		return complete
	}
	return incomplete
}

func all(has []bool) bool {
	for _, h := range has {
		if !h {
			return false
		}
	}
	return true
}

// rewind goes back to the first generation, and reports whether it was at a later one:
// a filter that was deleted and made again has none of those.
func (m *marks) rewind(shard int) bool {
	return m.now[shard].Swap(m.generation(shard, 0)).number > 0
}

// answers sets those of the IDs whose presence follows the items of a generation.
func (m *marks) answers(shard int, g *generation, has []bool, answers []presence.Answer) (shardState, error) {
	if len(has) != 2*m.n+len(answers) {
		return incomplete, fmt.Errorf("%d values in an answer of %d", len(has), 2*m.n+len(answers))
	}
	state := m.judge(shard, g, has[:2*m.n])
	for i := range answers {
		answers[i] = judge(has[2*m.n+i], state)
	}
	return state, nil
}

// unmarkItems are those of unmark.lua, and read what its answer means. Generations are
// ended from the one that end has on, at first 0: in every filter those that are over
// come before all others, so the load that ends the last one ends it for all.
func (m *marks) unmarkItems(shard int, load string, end *int64) (items []string, read func(any) error) {
	first := *end
	for g := range int64(lookAhead) + 1 {
		items = m.items(items, shard, fmt.Sprintf("over %d", first+g))
	}
	for g := range int64(lookAhead) {
		items = m.items(items, shard, fmt.Sprintf("whole %d", first+g+1))
	}
	items = m.items(items, shard, "load "+load)
	return items, func(reply any) error {
		n, _ := reply.(int64)
		switch {
		case n > 0:
			*end = first + n
			m.now[shard].Store(m.generation(shard, *end))
			return nil
		case n == replyBehind:
			*end = first + lookAhead
			return errBehind
		}
		return refusal(n)
	}
}

// markItems are those of mark.lua, and read what its answer means.
func (m *marks) markItems(shard int, load string, end int64) (items []string, read func(any) error) {
	items = m.items(nil, shard, "load "+load)
	items = append(items, m.generation(shard, end).items...)
	return items, func(reply any) error {
		if n, _ := reply.(int64); n != 1 {
			return refusal(n)
		}
		return nil
	}
}

// What the scripts answer besides positive numbers.
const (
	replyGone   = 0
	replyLost   = -1
	replyFull   = -2
	replyBehind = -3
)

func refusal(reply int64) error {
	switch reply {
	case replyGone:
		return ErrGone
	case replyLost:
		return ErrLoadLost
	case replyFull:
		return ErrFull
	}
	return fmt.Errorf("a script answered %d", reply)
}

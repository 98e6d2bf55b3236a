package exact

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ordergate/ordergate/filter/bloom"
)

// Advice compares what an exact set and a Bloom filter take, in bytes an ID.
type Advice struct {
	Exact float64 // 0 when no exact set can hold the IDs
	Bloom float64
	// NotNumeric is how many of the sample an exact set cannot hold. One is enough
	// to rule it out.
	NotNumeric int
}

// ExactFits reports whether an exact set holds the IDs in no more memory than a
// Bloom filter takes. It is the better choice then, since it is never wrong.
func (a Advice) ExactFits() bool { return a.NotNumeric == 0 && a.Exact <= a.Bloom }

const (
	// containerCost is what Roaring has beside the numbers of a container: key,
	// interface and flag in three slices, and the container's own header.
	// TestAdvice holds it against the heap.
	containerCost = 2 + 16 + 1 + 48
	// bitmapFrom is the number of values from which a container is a bitmap of
	// 8 KiB rather than a list of 2 bytes each.
	bitmapFrom, bitmapCost = 4097, 8192
	// aloneCost is what a number costs that shares its high 32 bits with no other:
	// a bitmap of its own, with three slices of one.
	aloneCost = 95
	// window is over how many gaps of the sample a density is taken. One gap
	// between numbers at random says nearly nothing.
	window = 8
)

// Advise estimates the memory for total IDs of which a sample is given: at
// random, or all of them. The Bloom filter is one for the rate with the default
// layout. It works by the gaps between sampled numbers that are neighbours: total
// divided by the sample's length is how many IDs are in each gap, so its width
// gives the density there. A sample of 10,000 is within 10% where the density
// varies little; it is too high where all of 65,536 numbers in a row are IDs, which
// take next to nothing, but which no sample can prove. A sample of 8 IDs or fewer
// is an error, and so are parameters that bloom.Params refuses.
func Advise(sample []string, total uint64, rate float64) (Advice, error) {
	size, err := bloom.Params{Capacity: max(total, uint64(len(sample))), FalsePositiveRate: rate}.Size()
	if err != nil {
		return Advice{}, fmt.Errorf("comparing filters: %w", err)
	}
	var a Advice
	numbers := make([]uint64, 0, len(sample))
	for _, id := range sample {
		if n, ok := Parse(id); ok {
			numbers = append(numbers, n)
		} else {
			a.NotNumeric++
		}
	}
	a.Bloom = float64(size.Bytes) / float64(max(total, uint64(len(sample))))
	if a.NotNumeric > 0 {
		return a, nil
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if len(numbers) <= window {
		return Advice{}, errors.New("comparing filters: the sample has 8 distinct IDs or fewer, which is too few to judge the others")
	}
	each := max(float64(total)/float64(len(numbers)), 1) // IDs to a gap
	cost := 0.0
	for i := window; i < len(numbers); i++ {
		cost += perID(each * window / float64(numbers[i]-numbers[i-window]))
	}
	a.Exact = cost / float64(len(numbers)-window)
	return a, nil
}

// perID returns what an ID costs where a share of all numbers are IDs.
func perID(density float64) float64 {
	inContainer := min(density, 1) * (1 << containerBits)
	switch {
	case inContainer >= bitmapFrom:
		return (bitmapCost + containerCost) / inContainer
	case inContainer >= 1:
		return 2 + containerCost/inContainer
	}
	// Mostly alone in their containers; sparser still, in their bitmaps.
	inBitmap := min(density*(1<<32), 1<<32)
	return 2 + containerCost + aloneCost/max(inBitmap, 1)
}

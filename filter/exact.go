package filter

import "github.com/ordergate/ordergate/filter/exact"

// exactBits is a set of numbers as bits. It contains every ID that is not a number: it cannot
// store those, so they are never absent.
type exactBits struct {
	set      *exact.Set
	capacity uint64 // as configured; it takes more
}

func (b *exactBits) Add(id string) bool {
	changed, err := b.set.Add(id)
	return changed && err == nil
}

func (b *exactBits) MayContain(id string) bool {
	in, number := b.set.MayContain(id)
	return in || !number
}

func (b *exactBits) Count() uint64                       { return b.set.Count() }
func (b *exactBits) Capacity() uint64                    { return max(b.capacity, b.set.Count()+1) }
func (b *exactBits) SizeBytes() uint64                   { return b.set.SizeBytes() }
func (b *exactBits) FillRatio() float64                  { return 0 }
func (b *exactBits) EstimatedFalsePositiveRate() float64 { return 0 }

package bloom

import "math"

// blockBits is the size of a block: a cache line, which the memory brings as a
// whole.
const (
	blockBits  = 512
	blockBytes = blockBits / 8
	blockWords = blockBits / 64
)

// maxHashes bounds the search for the best number of hashes. A rate of minRate
// asks for 40 in the classic layout and for fewer in the blocked one.
const maxHashes = 64

// classicRate returns the share of absent IDs that pass when each ID has put k
// bits into the room of bitsPerID: (1-e^(-k/bitsPerID))^k (Broder and
// Mitzenmacher, "Network Applications of Bloom Filters: A Survey", 2004).
func classicRate(bitsPerID float64, k int) float64 {
	return math.Pow(-math.Expm1(-float64(k)/bitsPerID), float64(k))
}

// classicSize returns the fewest bits an ID, and the hashes for them, at which
// classicRate is the rate.
func classicSize(rate float64) (bitsPerID float64, hashes int) {
	bitsPerID = math.Inf(1)
	for k := 1; k <= maxHashes; k++ {
		size := -float64(k) / math.Log1p(-math.Pow(rate, 1/float64(k)))
		if size >= bitsPerID {
			break // one minimum, and it is behind us
		}
		bitsPerID, hashes = size, k
	}
	return bitsPerID, hashes
}

// blockedRates gives the rates of blocks in which an ID has k bits. IDs fall into
// blocks at random, so a block's load is Poisson-distributed, and the rate is the
// mean over the loads (Putze, Sanders and Singler, "Cache-, Hash- and
// Space-Efficient Bloom Filters", 2007, section 3.1).
type blockedRates struct {
	k  float64
	of []float64 // by load: the chance to pass in such a block; grown on demand
}

// The logarithms of the chances that a bit thrown into a block leaves one certain bit
// clear, or two.
var (
	missesOne = math.Log1p(-1.0 / blockBits)
	missesTwo = math.Log1p(-2.0 / blockBits)
)

// inBlock returns the chance that an absent ID passes in a block of so many IDs:
// the k-th moment of the share of its bits that are set. Putze et al. take the
// k-th power of the mean; in 512 bits the share varies enough to lift the rate by
// some percent, hence the second term of its Taylor series. The moments of the
// share are those of the occupancy problem: balls thrown into bins.
func (b *blockedRates) inBlock(load int) float64 {
	for len(b.of) <= load {
		throws := float64(len(b.of)) * b.k
		one := math.Exp(throws * missesOne)
		two := math.Exp(throws * missesTwo)
		mean := 1 - one
		if mean == 0 {
			b.of = append(b.of, 0)
			continue
		}
		variance := one/blockBits + (1-1.0/blockBits)*two - one*one
		rate := math.Pow(mean, b.k) * (1 + b.k*(b.k-1)/2*variance/(mean*mean))
		b.of = append(b.of, min(rate, 1))
	}
	return b.of[load]
}

// negligible is a weight that adds nothing to any rate that can be asked for.
const negligible = 1e-30

// mean returns the rate at so many IDs a block on average.
func (b *blockedRates) mean(load float64) float64 {
	if load*b.k > 2*everyBit {
		return 1
	}
	mode := math.Floor(load)
	gamma, _ := math.Lgamma(mode + 1)
	top := math.Exp(-load + mode*math.Log(load) - gamma)
	rate := 0.0
	for j, weight := int(mode), top; weight > negligible; j++ {
		rate += weight * b.inBlock(j)
		weight *= load / float64(j+1)
	}
	for j, weight := int(mode), top; j > 0 && weight > negligible; {
		weight *= float64(j) / load
		j--
		rate += weight * b.inBlock(j)
	}
	return min(rate, 1)
}

// everyBit is how many bits thrown into a block leave none of them clear, but for
// 512*e^-12 of a bit.
const everyBit = 12 * blockBits

// load returns how many IDs a block may hold on average for the rate.
func (b *blockedRates) load(rate float64) float64 {
	low, high := 0.0, 1.0
	for high < everyBit/b.k && b.mean(high) <= rate {
		low, high = high, 2*high
	}
	for range 60 {
		middle := (low + high) / 2
		if b.mean(middle) <= rate {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// blockedSize returns the fewest bits an ID, and the hashes for them, at which
// the blocked layout has the rate.
func blockedSize(rate float64) (bitsPerID float64, hashes int) {
	bitsPerID = math.Inf(1)
	for k := 1; k <= maxHashes; k++ {
		rates := blockedRates{k: float64(k)}
		size := blockBits / rates.load(rate)
		if size >= bitsPerID {
			break
		}
		bitsPerID, hashes = size, k
	}
	return bitsPerID, hashes
}

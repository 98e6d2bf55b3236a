package hll

import "math"

// Count returns about how many there are. It reads the whole sketch: about 20 us.
//
// The formula is algorithm 6 of Otmar Ertl, "New cardinality estimation algorithms
// for HyperLogLog sketches" (2017), as in Redis. It needs no correction for small
// sets nor for large ones.
func (s *Sketch) Count() uint64 {
	var having [mostRank + 1]int // registers, by what they hold
	for i := range s.words {
		word := s.words[i].Load()
		for range perWord {
			having[word&0xff]++
			word >>= 8
		}
	}
	const m = registers
	sum := m * tau(1-float64(having[mostRank])/m)
	for rank := mostRank - 1; rank >= 1; rank-- {
		sum = (sum + float64(having[rank])) / 2
	}
	sum += m * sigma(float64(having[0])/m)
	if sum == 0 { // every register is full: no number that we could name
		return math.MaxUint64
	}
	return uint64(math.Round(m * m / (2 * math.Ln2 * sum)))
}

// sigma is x + the sum over k >= 1 of x^(2^k) * 2^(k-1): what empty registers add.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	sum, last := x, -1.0
	for weight := 1.0; sum != last; weight *= 2 {
		x *= x
		last = sum
		sum += x * weight
	}
	return sum
}

// tau is a third of 1 - x - the sum over k >= 1 of (1 - x^(2^-k))^2 * 2^-k: what
// registers add that can hold no more.
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	sum, last := 1-x, -1.0
	for weight := 0.5; sum != last; weight /= 2 {
		x = math.Sqrt(x)
		last = sum
		sum -= (1 - x) * (1 - x) * weight
	}
	return sum / 3
}

package main

import "strconv"

// Order numbers are given out in turn, and two of three are never an order's:
// carts that were left. So the i-th order is one of the three numbers from
// first + 3*i on, and a number that is none is right beside it.
const first = 1_000_000_000

func idOf(i int) uint64     { return first + 3*uint64(i) + scatter(uint64(i))%3 }
func absentOf(i int) uint64 { return first + 3*uint64(i) + (scatter(uint64(i))+1)%3 }

// scatter is the finalizer of SplitMix64: the same numbers in every run.
func scatter(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// texts writes numbers as strings, one behind the other in one piece of memory:
// reading them costs everybody the same and as little as can be.
func texts(n int, number func(i int) uint64) []string {
	const longest = 20
	arena := make([]byte, 0, n*longest)
	ids := make([]string, n)
	ends := make([]int, n)
	for i := range n {
		arena = strconv.AppendUint(arena, number(i), 10)
		ends[i] = len(arena)
	}
	all, from := string(arena), 0
	for i, to := range ends {
		ids[i] = all[from:to]
		from = to
	}
	return ids
}

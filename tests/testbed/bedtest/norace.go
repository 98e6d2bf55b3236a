//go:build !race

package bedtest

// Race reports whether the race detector is on, which makes some work ten times as
// dear: a test may then do less of what it does in full without.
const Race = false

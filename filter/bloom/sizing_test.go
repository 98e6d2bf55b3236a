package bloom

import "testing"

func BenchmarkSize(b *testing.B) {
	for b.Loop() {
		blockedSize(0.001)
	}
}

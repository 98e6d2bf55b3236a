package admin

import (
	"fmt"
	"math"
	"strconv"
)

// SizeText formats a size in the largest decimal unit (kB to TB) that it reaches.
func SizeText(bytes uint64) string {
	const units = "kMGT"
	for i := len(units); i > 0; i-- {
		if n := float64(bytes) / math.Pow10(3*i); n >= 0.99995 {
			return fmt.Sprintf("%.1f %cB", n, units[i-1])
		}
	}
	return fmt.Sprintf("%d B", bytes)
}

// Percent formats a share, 0 to 1, as a percentage with three significant digits.
func Percent(share float64) string { return strconv.FormatFloat(share*100, 'g', 3, 64) + "%" }

// Grouped formats a number with a comma before each three digits.
func Grouped(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

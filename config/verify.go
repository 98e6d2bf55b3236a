package config

import (
	"strconv"
	"strings"
)

// Values of the key verify.
const (
	DefaultVerify = "1/10000"
	VerifyOff     = "off"
)

// VerifyOneIn returns n if one in n refused lookups is verified, 0 if none is.
func (f *Filter) VerifyOneIn() int {
	_, n, _ := strings.Cut(f.Verify, "/")
	oneIn, _ := strconv.Atoi(n) // 0 for off
	return oneIn
}

// dropsOrders reports whether the filter refuses orders that exist, since they are too old.
func (f *Filter) dropsOrders() bool { return f.Segments != nil && f.Segments.Older == OlderAbsent }

func (v *validator) verify(path string, f Filter) {
	if f.dropsOrders() && f.Verify != VerifyOff {
		v.reject(path, "the filter refuses orders of dropped days (segments.older: %s), which would be found: remove this, or write %s", OlderAbsent, VerifyOff)
	}
}

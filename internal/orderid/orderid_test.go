package orderid

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for id, want := range map[string]string{
		"1": "", "a b": "", "Ωμέγα": "", strings.Repeat("x", 256): "",
		"": "empty", strings.Repeat("x", 257): "256 bytes", "a\x00": "control", "a\n": "control", "a\x7f": "control", "a\xff": "UTF-8",
	} {
		if got := Check(id); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}

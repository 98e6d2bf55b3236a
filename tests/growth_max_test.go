package tests

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestGrowthHasAnEnd has an operator, or whoever poses as one, make filters larger again and
// again, and fills them.
func TestGrowthHasAnEnd(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"rebuild": "expand: {by: 4, max: 6_000}",
		"layers":  "expand: {by: 4, how: layers, max: 6_000}",
		"default": "expand: {by: 16}",
		"bitmap":  "kind: redis-bitmap\n    expand: {by: 4, max: 6_000}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			most := uint64(6_000)
			if name == "default" {
				most = 32_000
			}
			s := newStack(t, settingsOf(t, settings))
			binary, file := s.Build("./cmd/sidecar", false), commandFile(t, s)
			expand := func() (string, error) {
				out, err := exec.CommandContext(t.Context(), binary, "filter", "expand", "orders", "--config", file).CombinedOutput()
				return string(out), err
			}
			if out, err := expand(); err != nil {
				t.Fatalf("growing for the first time: %v: %s", err, out)
			}
			if got := s.info("orders").Capacity; got != most {
				t.Errorf("capacity %d, want %d", got, most)
			}
			want := fmt.Sprintf("filter orders: the filter has the greatest capacity that expand.max allows: %d IDs\n", most)
			if out, err := expand(); err == nil || !strings.HasSuffix(out, want) {
				t.Errorf("growing beyond that: %v: %q, want %q", err, out, want)
			}
			full := func() bool {
				_, text := s.admin("GET", "/readyz", "")
				return strings.Contains(text, "filter orders growth")
			}
			if full() {
				t.Error("it says that it is full, and is not")
			}
			for from := 1_000; from < 2*int(most); from += 10_000 {
				var ids []string
				for id := from; id < from+10_000; id++ {
					ids = append(ids, fmt.Sprintf(`"%d"`, id))
				}
				if status, text := s.admin("POST", "/filters/orders/ids", `{"ids":[`+strings.Join(ids, ",")+`]}`); status != 200 {
					t.Fatalf("adding IDs: %d %s", status, text)
				}
			}
			inTheEnd(t, "it says that it is full", full) // how full a set in Redis is, is asked every 30 s
			if status, text := s.admin("GET", "/readyz", ""); status != 200 {
				t.Errorf("a full filter takes readiness away: %s", text)
			}
			if out, err := expand(); err == nil {
				t.Errorf("growing when it is full: %s", out)
			}
			s.must("GET", "/orders/1000", "").want(t, 200, "")
			if got := s.info("orders").Capacity; got != most {
				t.Errorf("capacity %d in the end, want %d", got, most)
			}
			lines := strings.Split(s.gate.Tail(), "\n")
			if slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "filter did not grow") }) {
				t.Errorf("the log has the same trouble twice: %q", lines)
			}
		})
	}
}

// settingsOf has a small filter with these settings.
func settingsOf(t *testing.T, filter string) settings {
	return settings{backend: newBackend(t).addr(), orders: 10, gate: func(yaml string) string {
		return bedtest.Replace(yaml, "    capacity: 1_000_000 ", "    capacity: 2_000\n    "+filter+" ")
	}}
}

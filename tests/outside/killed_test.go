package outside

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// tenth has the times of the example's lock be a tenth of what they are.
func tenth(text string) string {
	return regexp.MustCompile(`((?:lease|hold):\s+\d+)0s`).ReplaceAllString(text, "${1}s")
}

// TestKilled kills ordergate under a settlement that the order service takes nearly as long
// for as the example says that it may. Nothing else settles the order meanwhile.
func TestKilled(t *testing.T) {
	t.Parallel()
	onBoth(t, change{gate: tenth}, func(t *testing.T, s *site) {
		go s.ask("127.0.1.1", "POST", settleOf(seeded, "?slow=5500"))
		const sent = "cluster.backend-writes.upstream_cx_tx_bytes_total"
		bedtest.Eventually(t, "it is at the order service", func() bool {
			stats, err := s.envoy.Stats(t.Context(), sent)
			bedtest.Check(t, err)
			return stats[sent] > 0
		})
		s.gate.Kill()
		bedtest.Check(t, s.gate.Restart(t.Context()))
		s.addr = s.ListenerAddr(s.envoy, "orders")
		bedtest.Eventually(t, "another is let in", func() bool {
			status, _ := s.ask("127.0.1.2", "POST", settleOf(seeded, ""))
			return status == 200
		})
		bedtest.Eventually(t, "the first is done", func() bool {
			text, err := os.ReadFile(filepath.Join(s.data, "access.log"))
			return err == nil && strings.Contains(string(text), "slow=5500")
		})
		if n := s.paid()[seeded]; n != 1 {
			t.Errorf("the order was paid %d times", n)
		}
	})
}

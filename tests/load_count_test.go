package tests

import (
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLoadCountsRows has a table read again, and looks at how many IDs the command says
// that it read.
func TestLoadCountsRows(t *testing.T) {
	t.Parallel()
	const rows = 1000
	bed := bedtest.New(t)
	table := mariaTable(t, bed, rows, "--log-bin=binlog", "--binlog-format=ROW", "--server-id=1")
	for name, s := range map[string]tableSettings{
		"memory":   {},
		"followed": {source: ", follow: binlog"},
		"redis":    {kind: "redis-bitmap"},
		"layered":  {kind: "layered"},
	} {
		t.Run(name, func(t *testing.T) {
			s.member = "load-" + name
			gate := table.gate(bed, bed.Redis().Addr(), s)
			for range 2 {
				load := exec.CommandContext(t.Context(), bed.Build("./cmd/sidecar", false), "load", "--filter", "orders", "--json", "--config", gate.ConfigFile())
				load.Env = append(load.Environ(), "ORDERS_DSN="+table.dsn, "ORDERGATE_LISTEN_ADMIN="+bed.GateAddr(gate.Gate, "admin"))
				out, err := load.Output()
				must(t, err)
				var report struct {
					IDs  int     `json:"ids"`
					Took float64 `json:"took_seconds"`
				}
				must(t, json.Unmarshal(out, &report))
				if report.IDs != rows || report.Took > time.Minute.Seconds() {
					t.Errorf("the table has %d rows, and the command says: %s", rows, out)
				}
			}
		})
	}
}

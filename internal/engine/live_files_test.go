package engine

import (
	"strings"
	"testing"

	"github.com/ordergate/ordergate/config"
)

// TestRoom has a filter of about 17 MiB.
func TestRoom(t *testing.T) {
	f := config.Filter{Kind: config.FilterLocal, Capacity: 10_000_000, FalsePositiveRate: 0.001, Layout: config.LayoutClassic}
	if err := checkRoom(f, 64<<20); err != nil {
		t.Error(err)
	}
	err := checkRoom(f, 20<<20)
	if err == nil || !strings.Contains(err.Error(), "the disk has 20 MiB free, and two snapshots of the full filter take 34 MiB") {
		t.Error(err)
	}
}

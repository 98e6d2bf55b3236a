package tests

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const followModel = "../docs/follow.pml"

// followConfigs are the configurations of docs/follow.pml that each run searches.
var followConfigs = []string{
	"TWO XA FAILOVER",
	"TWO XA FLUSH LOST",
	"TWO XA RESTORE",
	"TWO XA SLOT FAILOVER",
	"RESTORE SLOT FAILOVER XA",
	"TRIM XA ROWS=2",
	"TRIM XA FAILOVER",
}

// followSoakConfigs are those that take up to a minute.
var followSoakConfigs = []string{
	"TWO XA FAILOVER ROWS=2",
	"TWO XA FLUSH ROWS=2",
	"TWO XA LOST ROWS=2",
	"RESTORE FAILOVER ROWS=2",
	"TRIM XA FAILOVER ROWS=2",
	"TRIM XA FAILOVER LOST FLUSH",
}

// followMutations leave out one rule of docs/follow.pml each.
var followMutations = []mutation{
	{"the place moves with the IDs, in one step", "M_TWO_STEPS"},
	{"the place moves only from the one that the follower stored last", "M_ANY_PLACE FAILOVER ROWS=2"},
	{"a lease is renewed where the follower's place is the stored one", "M_RENEW_ANY FAILOVER"},
	{"a chain begins with a doubt", "M_NO_DOUBT LOST"},
	{"a chain begins when all before it is visible", "M_BEGIN_EARLY XA"},
	{"all of the table is read again in another chain", "M_ANY_CHAIN LOST"},
	{"a reading does not clear a doubt that came since it began", "M_DOUBTED LOST"},
	{"the change log joins without a gap", "M_GAP TRIM"},
	{"all of the table is read again after a gap", "M_TAIL TRIM ROWS=2"},
	{"a position is in the history of the database", "M_ANY_POSITION RESTORE"},
	{"a slot that has moved on has lost the position", "M_SLOT_AHEAD SLOT FAILOVER"},
	// No rule, but what is taken for granted.
	{"the change log has an entry until its row is visible", "M_TRIM_EARLY TRIM XA ROWS=2"},
}

// TestModelFollow searches the model of how a table is followed, as [TestModel] does its models.
func TestModelFollow(t *testing.T) {
	needModelChecker(t)
	t.Parallel()
	configs := followConfigs
	if os.Getenv("SOAK") != "" || os.Getenv("MODEL") == "record" {
		configs = slices.Concat(configs, followSoakConfigs)
	}
	for _, config := range configs {
		t.Run(strings.ReplaceAll(config, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if out, found := searchFile(t, followModel, config); found {
				t.Errorf("a row that was visible at a renewal of the lease can be Absent:\n%s", out)
			}
		})
	}
	for _, m := range followMutations {
		t.Run(strings.ReplaceAll(m.config, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if out, found := searchFile(t, followModel, m.config); !found {
				t.Errorf("nothing goes wrong without the rule that %s:\n%s", m.without, out)
			}
		})
	}
}

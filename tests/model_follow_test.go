package tests

import (
	"strings"
	"testing"
)

const followModel = "../docs/follow.pml"

// followConfigs are the configurations of docs/follow.pml.
var followConfigs = []string{"XA ROWS=1", "TRIM ROWS=1", "FAILOVER ROWS=1", "FLUSH ROWS=1"}

// followMutations leave out one rule of docs/follow.pml each.
var followMutations = []mutation{
	{"the place moves with the IDs, in one step", "M_TWO_STEPS ROWS=1"},
	{"a reading counts if it began when all before the chain was visible", "M_NO_OVERLAP XA ROWS=1"},
	{"the change log joins without a gap", "M_GAP TRIM ROWS=1"},
	{"a position is in the history of the database", "M_ANY_POSITION RESTORE"},
}

// TestModelFollow searches the model of how a table is followed, as [TestModel] does its models.
func TestModelFollow(t *testing.T) {
	needModelChecker(t)
	t.Parallel()
	for _, config := range followConfigs {
		t.Run(strings.ReplaceAll(config, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if out, found := searchFile(t, followModel, config); found {
				t.Errorf("a row that was visible for longer than the lease can be Absent:\n%s", out)
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

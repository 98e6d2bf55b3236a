package tests

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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
			if out, found := searchFollow(t, config); found {
				t.Errorf("a row that was visible for longer than the lease can be Absent:\n%s", out)
			}
		})
	}
	for _, m := range followMutations {
		t.Run(strings.ReplaceAll(m.config, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if out, found := searchFollow(t, m.config); !found {
				t.Errorf("nothing goes wrong without the rule that %s:\n%s", m.without, out)
			}
		})
	}
}

// searchFollow searches docs/follow.pml with some macros, as [searchModel] does its models.
func searchFollow(t *testing.T, config string) (out string, found bool) {
	t.Helper()
	model, err := filepath.Abs("../docs/follow.pml")
	must(t, err)
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	args := []string{"-a"}
	for macro := range strings.FieldsSeq(config) {
		args = append(args, "-D"+macro)
	}
	run("spin", append(args, model)...)
	run("gcc", "-O1", "-w", "-DSAFETY", "-DREVERSE", "-DNOREDUCE", "-DMEMLIM=3000", "-o", "pan", "pan.c")
	out = run(filepath.Join(dir, "pan"), "-m100000")
	errors := panErrors.FindStringSubmatch(out)
	if errors != nil && errors[1] == "1" && panAbsent.MatchString(out) {
		return out, true
	}
	if errors == nil || errors[1] != "0" || !panWhole.MatchString(out) || panCut.MatchString(out) {
		t.Fatalf("the search with %q was not whole:\n%s", config, out)
	}
	return out, false
}

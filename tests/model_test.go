package tests

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// modelLimit bounds the search of one configuration. The largest takes some 15 s of
// a machine that has nothing else to do, and with SOAK three minutes and 4.5 GB.
const modelLimit = 10 * time.Minute

// modelSample is how many mutations there are for each one in a sample.
const modelSample = 34

// modelConfigs are the configurations that "make model" searches: those with TRIM of
// docs/freshness-trim.pml, the others of docs/freshness.pml; followConfigs are further ones.
var modelConfigs = []string{
	"HEARD",
	"SKEW T=1",
	"WIDER T=1",
	"IDS=2 T=1 PROMPT",
	"READERS=2 T=1 PROMPT",
	"SCOPE IDS=2 T=1 V=1 PROMPT",
	"SCOPE FAILOVER T=1 PROMPT",
	"PAGED HEARD PROMPT",
	"FAILOVER HEARD T=1 V=1 PROMPT",
	"SPLIT T=1 PROMPT",
	"SPLIT HEARD LOST T=1 V=1 PROMPT",
	"FLUSH T=1",
	"FLUSH RESTART T=1 V=1 PROMPT",
	"DELETE T=1 PROMPT",
	"CLOCK T=1 PROMPT",
	"CRASH T=1 PROMPT",
	"DELETE CRASH T=1 V=1 PROMPT",
	"FLUSH CRASH T=1 V=1 PROMPT",
	"REMOVE T=1 PROMPT",
	"RESTART HEARD T=1 PROMPT",
	"RESTART T=1",
	"RUNNING T=1",
	"RUNNING SCOPE T=1 PROMPT",
	"RUNNING RESTART T=1 PROMPT",
	"RUNNING FLUSH T=1 PROMPT",
	"TRIM TWICE RESTART",
	"TRIM FAILOVER",
	"TRIM UNREAD FAILOVER",
	"TRIM FLUSH RESTART OTHERS=1",
	"TRIM DELETE OTHERS=1",
	"TRIM UNREAD DELETE OTHERS=1",
}

// soakConfigs are those that are too large for that.
var soakConfigs = []string{
	"SPLIT V=1 PROMPT",
	"FAILOVER T=1 PROMPT",
	"STRAY FLUSH OTHERS=1 T=1 V=1 PROMPT",
	"FAILOVER OTHERS=2 T=1 V=1 PROMPT",
	"DELETE T=1",
	"SCOPE IDS=2 T=1 PROMPT",
	"FLUSH RESTART T=1 PROMPT",
	"RUNNING SCOPE T=1",
	"FLUSH",
	"DELETE",
	"SPLIT PROMPT",
	"FLUSH IDS=2 T=1 V=1 PROMPT",
	"RUNNING FAILOVER T=1 PROMPT",
	"RUNNING SPLIT T=1 PROMPT",
	"TRIM FAILOVER RESTART",
	"TRIM FAILOVER TWICE",
	"TRIM DELETE RESTART OTHERS=1",
}

// TestModel searches the models of docs/freshness.pml, docs/freshness-trim.pml and docs/follow.pml
// with spin. Without a mutation, no order may be Absent although its client was told of it, or
// although its row was visible when the lease was renewed: the search
// tries everything that can happen, leaves no state out and takes none for another. With a
// mutation, which leaves out one rule, the search has to find such an order, or it proves
// nothing.
//
// The whole search is needed once: "make model" records what it has searched. As long as
// the record fits, the test takes one configuration and a sample of the mutations.
func TestModel(t *testing.T) {
	needModelChecker(t)
	state := modelState(t)
	soak, record := os.Getenv("SOAK") != "", os.Getenv("MODEL") == "record"
	recorded, err := os.ReadFile(modelRecord)
	whole := soak || record || err != nil || string(recorded) != state
	if whole {
		t.Logf("tests/%s names another model, other scripts or another spin; the whole model is searched; make model records it", modelRecord)
	}
	t.Parallel()
	configs, mutations := slices.Concat(modelConfigs, followConfigs), slices.Concat(modelMutations, followMutations)
	switch {
	case soak:
		configs, mutations = slices.Concat(configs, soakConfigs, followSoakConfigs), slices.Concat(mutations, soakMutations)
	case !whole:
		configs = configs[:1]
	}
	t.Run("rules", func(t *testing.T) {
		for _, config := range configs {
			t.Run(strings.ReplaceAll("plain "+config, " ", "_"), func(t *testing.T) {
				t.Parallel()
				if out, found := searchModel(t, config); found {
					t.Errorf("an order that its client was told of can be Absent:\n%s", out)
				}
			})
		}
	})
	t.Run("mutations", func(t *testing.T) {
		for i, mutation := range mutations {
			if !whole && i%modelSample != 0 {
				continue
			}
			t.Run(strings.ReplaceAll(mutation.config, " ", "_"), func(t *testing.T) {
				t.Parallel()
				if out, found := searchModel(t, mutation.config); !found {
					t.Errorf("nothing goes wrong without the rule that %s:\n%s", mutation.without, out)
				}
			})
		}
	})
	if record && !t.Failed() {
		if modelState(t) != state {
			t.Fatal("the model, a script or a time limit changed during the search")
		}
		must(t, os.WriteFile(modelRecord, []byte(state), 0o644))
	}
}

// mutation leaves out one rule of the protocol.
type mutation struct{ without, config string }

// modelMutations are those that "make model" searches.
var modelMutations = []mutation{
	{"an answer waits for the end of all windows", "M_NO_WINDOW T=1"},
	{"it is sooner when all readers reported", "M_NO_REPORT T=1"},
	{"all are all, not one", "M_ONE_READER READERS=2 T=1 PROMPT"},
	{"a report is of what was applied, not of what was sent", "M_REPORT_TAIL T=1"},
	{"a reader is noted in an era that it has had a reply in", "M_REPORT_ANY WIDER T=1"},
	{"a reader that is not noted opens no window", "M_NOT_NOTED T=1"},
	{"who has heard of an entry has not read those before it", "M_HEARD_IS_READ SPLIT LAGS HEARD T=1 V=1 PROMPT"},
	{"what was heard counts if it stands in the log", "M_HEARD_ANY SPLIT LAGS HEARD LOST T=1 V=1 PROMPT"},
	{"what was heard counts if it came from one server", "M_HEARD_MIXED SPLIT LAGS HEARD LOST T=1 V=1 PROMPT"},
	{"who reported in another era did not in this one", "M_REPORT_ERA FAILOVER T=1 PROMPT"},
	{"reports count when the windows of earlier eras are over", "M_NO_SINCE DELETE T=1 PROMPT"},
	{"readers that were lost end the era", "M_STRIPPED DELETE T=1 PROMPT"},
	{"readers are looked at when that is known", "M_UNCHECKED DELETE T=1 PROMPT"},
	{"reports wait for the lease at the former master", "M_SHORT_COUNTS SPLIT V=1 PROMPT"},
	{"an acknowledgement waits for windows after that lease", "M_COUNTS_EARLY SPLIT PROMPT"},
	{"an answer without one waits for windows after the lease", "M_WITHDRAW_EARLY T=1"},
	{"who joins waits for windows of before", "M_JOIN_AT_ONCE T=1"},
	{"a reader is forgotten that has not read since", "M_FORGET_ALL IDS=2 T=1 PROMPT"},
	{"a reader is forgotten when its window is over", "M_FORGET_EARLY IDS=2 T=1 PROMPT"},
	{"a window begins when its read is sent", "M_FROM_REPLY T=1"},
	{"a window is opened when all is applied", "M_WINDOW_EARLY T=1"},
	{"a window needs a read to the tail", "M_NOT_TAIL PAGED PROMPT"},
	{"a wait has a margin for slow clocks", "M_NO_MARGIN SKEW T=1"},
	{"a larger window waits until all know of it", "M_WIDE WIDER T=1"},
	{"it waits for that from a reply of the era", "M_WIDE_LOST WIDER T=1"},
	{"a reader that is alone waits, too", "M_WIDE_ALONE WIDER T=1"},
	{"who joins is told of larger windows", "M_JOIN_DEAF WIDER T=1"},
	{"a reader closes its window before it leaves", "M_LEAVE_OPEN RESTART T=1"},
	{"the window is loaded before the look", "M_LOOK_EARLY T=1"},
	{"a lease is counted from the base, not from its renewal", "M_LEASE_FROM_NOW"},
	{"an answer waits for the end of the lease", "M_NO_WAIT T=1"},
	{"nothing is renewed while something is owed", "M_RENEW_OWING"},
	{"nothing is renewed until all is paid", "M_RENEW_ONE IDS=2 T=1 PROMPT"},
	{"no window is opened while a member lapsed", "M_IGNORE_LAPSED T=1"},
	{"who creates has joined", "M_NOT_JOINED T=1"},
	{"a failover is a doubt", "M_NO_TERM FAILOVER T=1 PROMPT"},
	{"the doubts are loaded before the look", "M_LOOK_FIRST FAILOVER T=1 PROMPT"},
	{"the doubts are loaded after the window", "M_STATE_EARLY FAILOVER T=1 PROMPT"},
	{"a doubt is cleared by what was read since", "M_OLD_READ FAILOVER T=1 PROMPT"},
	{"a failover ends all leases", "M_NO_LAPSE SPLIT T=1 PROMPT"},
	{"an acknowledgement of a former master does not count", "M_ANY_ACK SPLIT T=1 PROMPT"},
	{"an acknowledgement waits for the lease at the former master", "M_TWO_LEASES SPLIT V=1 PROMPT"},
	{"what a former master has is appended again", "M_NOT_AGAIN SPLIT T=1 PROMPT"},
	{"the source is read after the first page", "M_READ_FIRST FLUSH T=1 PROMPT"},
	{"members that were lost are called back", "M_FORGETFUL FLUSH T=1 PROMPT"},
	{"a log that lost its members is another one", "M_ALONE DELETE T=1 PROMPT"},
	{"a clock that was set back ends all leases", "M_NO_ERA CLOCK T=1 PROMPT"},
	{"who does not read is not sure of the clock", "M_UNSTEADY CLOCK T=1 PROMPT"},
	{"only a member that left is not called back", "M_PARTED_ALL DELETE CRASH T=1 V=1 PROMPT"},
	{"a member that vanished is a doubt", "M_NO_CRASH CRASH T=1 PROMPT"},
	{"who owes does not leave", "M_LEAVE_OWING CRASH T=1 PROMPT"},
	{"who may be taken for gone tells nobody", "M_NO_FENCE REMOVE T=1 PROMPT"},
	{"a snapshot keeps the doubt", "M_SNAPSHOT FLUSH RESTART T=1 PROMPT"},
	{"a table's mark is behind nothing that was not committed", "M_PASS_ALL SCOPE FAILOVER T=1 PROMPT"},
	{"a doubt is about what was created since its call began", "M_SINCE_TOLD SCOPE IDS=2 T=1 PROMPT"},
	{"a call that nobody waits for may still run", "M_AT_ONCE RUNNING T=1"},
	{"a reading counts that began when no call could run", "M_ENDS_LATE RUNNING T=1"},
	{"no snapshot is written while a call may run", "M_KEEP RUNNING RESTART T=1 PROMPT"},
	{"a table's mark moves to a row that was seen long before", "M_MARK_EARLY RUNNING SCOPE T=1 PROMPT"},
	{"a doubt that Redis lost is appended again", "M_NOT_AGAIN RUNNING FLUSH T=1 PROMPT"},
	{"a snapshot is current before the log is trimmed", "M_TRIM_FIRST TRIM"},
	{"a filter with a doubt writes no snapshot", "M_WITH_DOUBT TRIM UNREAD"},
	{"a snapshot's mark is older than its bits", "M_MARK_LATE TRIM"},
	{"whoever is behind the log's beginning needs a snapshot", "M_GOES_ON TRIM"},
	{"a snapshot ends in the log, not in front of it", "M_ANY_MARK TRIM DELETE OTHERS=1"},
	{"chunks are looked for where the log is", "M_NO_CHUNKS TRIM FAILOVER"},
	{"a mark is looked for where the log is", "M_ANY_ENTRY TRIM FAILOVER OTHERS=3"},
	{"the log that is read on has the entry that the snapshot ends with", "M_NO_JOINT TRIM FAILOVER"},
	{"a log that has not come to that entry is not the one", "M_JOINT_LATER TRIM FAILOVER"},
	{"a doubt that a replica lacks is appended again", "M_DOUBT_LOST TRIM UNREAD FAILOVER"},
	// No rule, but what is taken for granted.
	{"somebody knows a member that Redis forgets", "M_UNSEEN FLUSH T=1 PROMPT"},
	{"Redis's clock is not set forward while a call may run", "M_FORWARD RUNNING T=1"},
	{"somebody who knew a log finds that it was deleted before another begins with the next", "M_UNNOTICED TRIM FLUSH RESTART OTHERS=1"},
}

// soakMutations are those that take longer.
var soakMutations = []mutation{
	{"a reader is forgotten in the era of the entry", "M_FORGET_ERA FLUSH IDS=2 T=1 V=1 PROMPT"},
	{"who leaves after a failover leaves a doubt", "M_LEAVE_ANY SPLIT CRASH T=1 PROMPT"},
	{"who starts waits for the end of the lease of who was there before", "M_HEIR SPLIT CRASH V=1 PROMPT"},
	{"a doubt does not pay for an older order", "M_PAYS_OLDER SCOPE IDS=2 T=1 PROMPT"},
	{"who has heard of an entry has not read those before it", "M_HEARD_IS_READ FAILOVER HEARD OTHERS=2 T=1 V=1 PROMPT"},
}

// modelRecord is the file with the modelState of the last whole search.
const modelRecord = "testdata/model.searched"

// modelState identifies everything on which the result of a search depends: the model and
// this test, the scripts and the time limits that they model, and spin.
func modelState(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../internal/changelog/*.lua")
	must(t, err)
	files = append(files, "../internal/changelog/limits.go", "../docs/freshness.pml", "../docs/freshness-trim.pml", "../docs/follow.pml", "model_test.go", "model_follow_test.go")
	hash := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		fmt.Fprintf(hash, "%q %q\n", filepath.Base(file), text)
	}
	for _, tt := range []string{"100ms 10s", "99ms 10s", "10s 11s", "10s 10999ms", "10001ms 24h", "9s 10s", "9091ms 10s"} {
		window, expel, _ := strings.Cut(tt, " ")
		fmt.Fprintf(hash, "%s %v\n", tt, fits(t, window, expel))
	}
	version, err := exec.CommandContext(t.Context(), "spin", "-V").Output()
	must(t, err)
	return fmt.Sprintf("%ssha256 %x\n", version, hash.Sum(nil))
}

// fits reports whether a file may have a window beside a time after which a member is expelled.
func fits(t *testing.T, window, expel string) bool {
	t.Helper()
	_, err := config.Parse("ordergate.yaml", []byte(bedtest.Replace(bedtest.Replace(`
listen: {authz: 127.0.0.1:0, proc: ""}
redis: {addresses: [127.0.0.1:6379]}
filters:
  orders: {capacity: 1000, sources: [ids], stale_after: 10s, freshness: {window: WINDOW}, change_log: {expel: EXPEL}}
sources:
  ids: {kind: csv, path: ids.csv}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: orders}
`, "WINDOW", window), "EXPEL", expel)), func(string) string { return "" })
	if err != nil && !strings.Contains(err.Error(), "filters.orders.") {
		t.Fatal(err)
	}
	return err == nil
}

func needModelChecker(t *testing.T) {
	t.Helper()
	bedtest.NeedProcesses(t)
	for _, program := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			bedtest.Check(t, &testbed.MissingError{Program: program, Fetch: program})
		}
	}
}

var (
	// Of pan's report. Without all of the first two it has not seen every state.
	panErrors = regexp.MustCompile(`errors: (\d+)`)
	panWhole  = regexp.MustCompile(`Full statespace search for:`)
	panCut    = regexp.MustCompile(`(?i)max search depth too small|search not completed|out of memory|memory limit|truncated`)
	panAbsent = regexp.MustCompile(`pan:\d+: assertion violated`)
)

// searchModel searches the model with some macros, which blanks separate, and reports
// whether it found the assertion violated. It fails the test when the search ended
// in any other way than with that, or with every state seen.
func searchModel(t *testing.T, config string) (out string, found bool) {
	t.Helper()
	file := "../docs/freshness.pml"
	switch macros := strings.Fields(config); {
	case slices.Contains(macros, "FOLLOW"):
		file = "../docs/follow.pml"
	case slices.Contains(macros, "TRIM"):
		file = "../docs/freshness-trim.pml"
	}
	model, err := filepath.Abs(file)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), modelLimit)
	defer cancel()
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
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
	// With the processes in reverse, what breaks a rule is found sooner. MEMLIM is in
	// megabytes; pan says so when it is reached.
	run("gcc", "-O1", "-w", "-DSAFETY", "-DREVERSE", "-DNOREDUCE", "-DMEMLIM=6000", "-o", "pan", "pan.c")
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

package redislock

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// lossyHook loses calls, or the replies to them.
type lossyHook struct{ mode atomic.Int32 }

const (
	loseNothing = iota
	loseCalls
	loseReplies
)

func (h *lossyHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *lossyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.around([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h *lossyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.around(cmds, func() error { return next(ctx, cmds) })
	}
}

func (h *lossyHook) around(cmds []redis.Cmder, next func() error) error {
	mode := h.mode.Load()
	var err error
	if mode != loseCalls {
		err = next()
	}
	if mode == loseNothing {
		return err
	}
	for _, cmd := range cmds {
		cmd.SetErr(io.ErrUnexpectedEOF)
	}
	return io.ErrUnexpectedEOF
}

var storedSorts = []struct {
	name    string
	opts    Options
	cluster bool
}{
	{name: "exclusive"},
	{name: "string", opts: Options{Format: String}},
	{name: "fair", opts: Options{Kind: Fair}},
	{name: "write", opts: Options{Kind: Write}},
	{name: "cluster", cluster: true},
}

// storedBed is a Redis for many runs.
type storedBed struct {
	client  redis.UniversalClient
	cluster bool
	opts    Options
	lossy   *lossyHook
	mutate  []string // pairs of texts in the scripts and replacements
	runs    int
}

func newStoredBed(t *testing.T, opts Options, onCluster bool) *storedBed {
	bed := &storedBed{opts: opts, cluster: onCluster, lossy: &lossyHook{}}
	if onCluster {
		bed.client = cluster(t, 1)[0]
		bed.client.(*redis.ClusterClient).OnNewNode(func(node *redis.Client) { node.AddHook(bed.lossy) })
	} else {
		bed.client = single(t, 1)[0]
		bed.client.AddHook(bed.lossy)
	}
	bed.opts.Lease = time.Hour
	return bed
}

// run does random steps on locks of its own. The seed determines all that happens. It returns
// what was wrong, or "".
func (bed *storedBed) run(t *testing.T, seed uint64, steps int) string {
	t.Helper()
	bed.runs++
	m := &storedModel{
		t: t, random: rand.New(rand.NewPCG(seed, 11)), client: bed.client, cluster: bed.cluster, lossy: bed.lossy,
		holder: make(map[string]*modelLease), parts: make(map[string][]*modelLease), answers: make(map[string]modelAnswer),
		marks: make(map[string]map[string]*modelMark), last: make(map[string]int64),
	}
	for _, form := range []string{"{%d.a}1", "{%d.a}2", "%d.b"} {
		m.keys = append(m.keys, fmt.Sprintf(form, bed.runs))
	}
	slices.Sort(m.keys)
	for range 2 {
		l, err := New(bed.client, bed.opts)
		bedtest.Check(t, err)
		defer l.Close()
		m.grouped = l.scripts.acquireAll != nil
		for _, script := range []**redisbatch.Script{
			&l.scripts.acquire, &l.scripts.acquireStored, &l.scripts.acquireAll, &l.scripts.acquireAllStored,
			&l.scripts.reenter, &l.scripts.reenterStored,
			&l.scripts.release, &l.scripts.store, &l.scripts.storeLong, &l.scripts.forget, &l.scripts.suspend, &l.scripts.restore,
		} {
			bed.load(t, script)
		}
		m.lockers = append(m.lockers, l)
	}
	for i := range steps {
		wrong := m.step()
		if wrong == "" {
			wrong = m.compare()
		}
		if wrong != "" {
			return fmt.Sprintf("step %d: %s\n%s", i+1, wrong, strings.Join(m.trace, "\n"))
		}
	}
	return ""
}

// load changes a script, and has all servers know it: a reply that gets lost may say that one
// does not.
func (bed *storedBed) load(t *testing.T, script **redisbatch.Script) {
	t.Helper()
	if *script == nil {
		return
	}
	text := strings.ReplaceAll((*script).Text, "#others > 99", fmt.Sprint("#others > ", mostMay))
	text = strings.NewReplacer(bed.mutate...).Replace(text)
	*script = redisbatch.NewScript(text)
	bedtest.Check(t, bed.client.ScriptLoad(t.Context(), text).Err())
}

// TestStoredModel runs the model: a few runs, 2,000 with SOAK, or that of SEED.
func TestStoredModel(t *testing.T) {
	bedtest.WithoutRace(t)
	t.Parallel()
	for _, s := range storedSorts {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			bed := newStoredBed(t, s.opts, s.cluster)
			first, runs := rand.Uint64(), 10
			if os.Getenv("SOAK") != "" {
				runs = 2000
			}
			if text := os.Getenv("SEED"); text != "" {
				var err error
				first, err = strconv.ParseUint(text, 10, 64)
				bedtest.Check(t, err)
				runs = 1
			}
			t.Logf("%d runs from seed %d", runs, first)
			for i := range runs {
				seed := first + uint64(i)
				if wrong := bed.run(t, seed, 100); wrong != "" {
					t.Fatalf("%s\nto see it again: SEED=%d go test -run '%s$' ./lockmw/redislock", wrong, seed, t.Name())
				}
			}
		})
	}
}

// TestStoredModelFindsMutations breaks one line of a script at a time.
func TestStoredModelFindsMutations(t *testing.T) {
	bedtest.WithoutRace(t)
	t.Parallel()
	for _, m := range []struct {
		name    string
		scripts []string // a text and its replacement
	}{
		{"a later answer replaces the first", []string{"free = is_undone or may_be and not mine", "free = true", "'px', ARGV[6], 'nx'", "'px', ARGV[6]"}},
		{"an answer is stored for ever", []string{"'px', ARGV[6], 'nx'", "'nx'"}},
		{"a call that lost its lease stores nothing", []string{"local free = not there", "local free = not there and within(KEYS[1], ARGV[1], ARGV[4])"}},
		{"an answer is that of the lock, whatever its name", []string{"local key, number = KEYS[#KEYS]", "local key, number = KEYS[1] .. ':ordergate_once:pay'"}},
		{"the usual release stores for the lock, whatever its name", []string{"redis.pcall('set', KEYS[3]", "redis.pcall('set', KEYS[1] .. ':ordergate_once:pay'"}},
		{"the usual release is that of every owner", []string{"ARGV[4] == ARGV[1] and redis.call('hget', KEYS[1], ARGV[1]) == '1' and", ""}},
		{"the usual acquire looks for no answer", []string{"redis.call('exists', KEYS[1], KEYS[#KEYS])", "redis.call('exists', KEYS[1])"}},
		{"several locks: the answer of the first counts for nothing", []string{"2 * ARGV[5] + 1", "2 * ARGV[5] + 2"}},
		{"what is undone counts", []string{"number < below", "false"}},
		{"what may be undone counts", []string{"number < upto", "false"}},
		{"the mark of all answers counts for none", []string{"'hmget', marks_of(lock), '*',", "'hmget', marks_of(lock), '',"}},
		{"a mark covers no answer of its own lease's number", []string{"greatest_mark(lock)) + 1", "greatest_mark(lock))"}},
		{"marks are not counted", []string{"redis.call('hset', marks_of(lock), '', string", "local _ = (string"}},
		{"a late answer counts as one of the lease", []string{"if within(KEYS[1], ARGV[1], ARGV[4]) then", "if true then"}},
		{"an answer of the lease is below what was marked before", []string{"number = math.max(number, greatest_mark(KEYS[1]))", ""}},
		{"an undone answer is not replaced", []string{"free = is_undone or may_be", "free = may_be"}},
		{"an answer replaces a suspended one that is above it", []string{"may_be and not mine", "may_be"}},
		{"what is suspended is not forgotten", []string{"below = math.max(below, mine)", ""}},
		{"what another call has suspended is forgotten", []string{"below = math.max(below, mine)", "below = math.max(below, mine, may[1] and may[1][1] or 0)"}},
		{"a late call suspends", []string{"if not within(KEYS[1], ARGV[1], ARGV[2]) then", "if false then"}},
		{"nothing is given back", []string{"  if mine or during then\n", "  if false then\n"}},
		{"an answer stored beside an undo is not suspended", []string{"string.find(m[2], '=*', 1, true)", "false"}},
		{"an answer stored beside an undo is not given back", []string{"write_mark(below, rest)", "write_mark(below, others)"}},
		{"an answer stored after an undo is suspended", []string{"and within(KEYS[1], ARGV[1], m[2])", ""}},
		{"what another call has suspended is given back", []string{"m[2] == part", "true"}},
		{"the last of several that suspend gives back", []string{"local others = without(may, part)", "local others = {}"}},
		{"a suspension ends an earlier undo", []string{"write_mark(below, may_too", "write_mark(0, may_too"}},
		{"another holder lets a suspended answer pass", []string{"may_be and redis.call('exists', lock) == 1", "may_be"}},
		{"a holder is refused what it is about to undo", []string{"is_undone or may_be and redis.call('exists', lock) == 1", "is_undone"}},
		{"nothing stands in the place of a forgotten answer", []string{"redis.call('hset', marks, ARGV[i], write_mark(below, others))", ""}},
		{"a call forgets all, late or after what it has suspended was forgotten", []string{"mine = ARGV[5] + 1", "mine = next_mark(KEYS[1], ARGV[5], ARGV[6])"}},
		{"a late call ends a suspension", []string{"redis.call('hset', marks, ARGV[i], write_mark(below, others))", "redis.call('hset', marks, ARGV[i], write_mark(below, {}))"}},
		{"within a lease, a name is that of several", []string{"other and (other == does or other == '*') ~= (does == '*')", "false"}},
		{"within a lease, a call undoes beside one that settles", []string{"(other == does or other == '*') ~= (does == '*')", "other == does"}},
		{"within a lease, a call settles beside one that undoes", []string{"(other == does or other == '*') ~= (does == '*')", "other == does and does ~= '*' or does == '*' and other ~= '*'"}},
		{"within a lease, what another call may undo counts for nothing", []string{"not undoes(KEYS[1], KEYS[#KEYS], number, ARGV[2])", "false"}},
		{"within a lease, what a call may undo is refused", []string{"not undoes(KEYS[1], KEYS[#KEYS], number, ARGV[2])", "true"}},
		{"within a lease, a call beside it may have undone", []string{"local _, upto = without(may, part)", "local upto = may[1] and may[1][1]"}},
		{"a long answer lasts longer than the marks", []string{"> 86400000 or", "> 1e12 or"}},
		{"the first name is not forgotten", []string{"for i = 7, #ARGV do", "for i = 8, #ARGV do"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			bed := newStoredBed(t, Options{}, false)
			bed.mutate = m.scripts
			const most = 100
			for seed := range uint64(most) {
				if wrong := bed.run(t, seed, 100); wrong != "" {
					t.Logf("with seed %d: %s", seed, wrong[:strings.IndexByte(wrong, '\n')])
					return
				}
			}
			t.Errorf("nothing goes wrong in %d runs", most)
		})
	}
}

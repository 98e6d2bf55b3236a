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
		holder: make(map[string]*modelLease), answers: make(map[string]modelAnswer),
	}
	for _, form := range []string{"{%d.a}1", "{%d.a}2", "{%d.b}3", "%d.c"} {
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
			&l.scripts.release, &l.scripts.store, &l.scripts.forget, &l.scripts.suspend, &l.scripts.restore,
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
	text := strings.NewReplacer(bed.mutate...).Replace((*script).Text)
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
		{"a later answer replaces the first", []string{"'px', ARGV[6], 'nx'", "'px', ARGV[6]"}},
		{"an answer is stored for ever", []string{"'px', ARGV[6], 'nx'", "'nx'"}},
		{"a call that lost its lease stores nothing", []string{"local stored = redis.pcall('set'", "local stored = redis.call('hexists', KEYS[1], ARGV[1]) == 0 or redis.pcall('set'"}},
		{"an answer is that of the lock, whatever its name", []string{"redis.call('set', KEYS[#KEYS]", "redis.call('set', KEYS[1] .. ':ordergate_once:pay'"}},
		{"the usual release stores for the lock, whatever its name", []string{"redis.pcall('set', KEYS[3]", "redis.pcall('set', KEYS[1] .. ':ordergate_once:pay'"}},
		{"the usual release is that of every owner", []string{"ARGV[4] == ARGV[1] and redis.call('hget', KEYS[1], ARGV[1]) == '1'", "true"}},
		{"the usual acquire looks for no answer", []string{"redis.call('exists', KEYS[1], KEYS[#KEYS])", "redis.call('exists', KEYS[1])"}},
		{"several locks: the answer of the first counts for nothing", []string{"2 * ARGV[5] + 1", "2 * ARGV[5] + 2"}},
		{"what was forgotten is stored again", []string{"tonumber(fence) < tonumber(ARGV[7])", "true"}},
		{"the answer of a later call is forgotten", []string{"tonumber(fence) < tonumber(ARGV[6])", "true"}},
		{"what is suspended is not forgotten", []string{"mark == ARGV[6] or ", ""}},
		{"a late call suspends", []string{"nested(KEYS[1], ARGV[2]) == nil", "false"}},
		{"nothing is suspended", []string{"redis.call('set', KEYS[i], 'suspended ' .. ARGV[1] .. ' ' .. who .. ' ' .. text, 'keepttl')", ""}},
		{"a suspended answer is kept for ever", []string{" .. text, 'keepttl')", " .. text)"}},
		{"nothing is given back", []string{"by == ARGV[4]", "false"}},
		{"what another call has suspended is given back", []string{"by == ARGV[4]", "by"}},
		{"another holder lets a suspended answer pass", []string{"fence == redis.call('get', KEYS[2])", "fence"}},
		{"nothing stands in the place of a forgotten answer", []string{"redis.call('set', KEYS[i], 'forgotten ' .. ARGV[6], 'px', 3600000)", ""}},
		{"the first name is not forgotten", []string{"for i = tonumber(ARGV[5]), #KEYS do", "for i = tonumber(ARGV[5]) + 1, #KEYS do"}},
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

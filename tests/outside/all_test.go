package outside

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// only tells which attack did it, when something has gone wrong.
var only = flag.String("attacks", "", "the attacks of TestAllAtOnce: a regular expression; all without it")

// scale is how long the assault lasts, and the times that it depends on. A short run has a
// tenth of the example's: a call that runs after its lock has ended is seen within it.
type scale struct {
	length time.Duration
	hold   time.Duration // of the example's lock, after an unknown outcome
	slow   time.Duration // what the order service takes at most to settle one order
	change change
}

// scaled is for 20 s, or as the examples are for ten minutes with SOAK set.
func scaled(t testing.TB) scale {
	if os.Getenv("SOAK") != "" {
		return scale{length: 10 * time.Minute, hold: time.Minute, slow: 10 * time.Second}
	}
	return scale{length: 20 * time.Second, hold: 6 * time.Second, slow: time.Second, change: change{
		gate: func(text string) string {
			return longWindow(t)(replaced(t, "{hold: 60s}", "{hold: 6s}")(text))
		},
		envoy: replaced(t, "                  timeout: 30s\n", "                  timeout: 3s\n"),
	}}
}

// assault is all attacks at once, beside people who look up and settle their orders.
type assault struct {
	*site
	scale

	mu     sync.Mutex
	counts map[string]int             // what came of what
	took   map[string][]time.Duration // how long answers took, by what people did
	flood  []floodSecond
	begun  time.Time
}

// floodSecond is what became of the made-up lookups of one second.
type floodSecond struct{ sent, absent int }

// TestAllAtOnce attacks with everything at once, and then looks into the backend's books:
// no order is paid twice, none that exists is refused, nearly all made-up lookups are, and
// no lock is left. It reports what people noticed of it.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	scale := scaled(t)
	onBoth(t, scale.change, func(t *testing.T, s *site) {
		a := &assault{site: s, scale: scale, counts: make(map[string]int), took: make(map[string][]time.Duration), begun: time.Now()}
		a.flood = make([]floodSecond, int(scale.length/time.Second)+60)
		stop := a.followOrders(t)
		a.run(t)
		a.report(t)
		a.drain(t)
		stop()
		a.checkBooks(t)
		a.checkOrders(t)
		a.checkFlood(t)
		a.checkLocks(t)
		a.checkAccessLog()
	})
}

// run has everybody at it until the time is up, and waits for them.
func (a *assault) run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), a.length)
	defer cancel()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() { a.customer(ctx, i) })
	}
	chosen := regexp.MustCompile(*only)
	for name, attack := range attacks {
		if !chosen.MatchString(name) {
			continue
		}
		for i := range attack.clients {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					attack.once(ctx, a, attack.from(i), n)
					pause(ctx, attack.every)
				}
				a.count("attackers at " + name)
			})
		}
	}
	all.Wait()
}

// followOrders keeps the table of orders, which the order service keeps in files. The
// function that it returns ends that.
func (a *assault) followOrders(t *testing.T) (stop func()) {
	watcher, err := fsnotify.NewWatcher()
	bedtest.Check(t, err)
	dir := filepath.Join(a.data, "orders")
	bedtest.Check(t, os.MkdirAll(dir, 0o755)) // or the order service makes it, with the first order
	bedtest.Check(t, watcher.Add(dir))
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watcher.Events {
			name, ok := strings.CutSuffix(filepath.Base(event.Name), ".json")
			id, err := strconv.ParseInt(name, 10, 64)
			if !ok || err != nil || !event.Has(fsnotify.Create) {
				continue
			}
			if _, err := a.db.Exec("INSERT IGNORE INTO orders VALUES (?)", id); err != nil {
				a.count("rows that were not written: " + err.Error())
			}
		}
	})
	return func() {
		bedtest.Check(t, watcher.Close())
		done.Wait()
	}
}

// drain waits until the order service has done all that it still has to, which may come
// after the order's lock has ended: nothing waits for it, and no worker of it has written a
// line for longer than the slowest request takes.
func (a *assault) drain(t *testing.T) {
	t.Helper()
	begun, quiet, written := time.Now(), time.Now(), int64(-1)
	for time.Since(quiet) < a.slow+2*time.Second {
		info, err := os.Stat(filepath.Join(a.data, "access.log"))
		bedtest.Check(t, err)
		if a.waiting() > 0 || info.Size() != written {
			quiet, written = time.Now(), info.Size()
		}
		if time.Since(begun) > 10*time.Minute {
			t.Fatal("the order service does not come to an end")
		}
		pause(t.Context(), 250*time.Millisecond) // to count who waits takes the kernel a while
	}
	t.Logf("the order service was at it for another %v", quiet.Sub(begun).Round(time.Second/10))
}

// checkBooks looks for orders that were paid twice.
func (a *assault) checkBooks(t *testing.T) {
	t.Helper()
	paid, twice := a.paid(), 0
	for id, n := range paid {
		if n > 1 {
			twice++
			if twice <= 5 {
				t.Errorf("order %d was paid %d times", id, n)
			}
		}
	}
	t.Logf("%d orders were paid, %d of them more than once", len(paid), twice)
	if twice > 5 {
		t.Errorf("and so were %d others", twice-5)
	}
}

// checkOrders looks up every order that the service has made, whether its customer has
// stayed for the answer or not.
func (a *assault) checkOrders(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(a.data, "orders", "*.json"))
	bedtest.Check(t, err)
	client := a.client("127.0.0.9")
	defer client.CloseIdleConnections()
	refused := 0
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), ".json")
		if status, verdict, err := a.lookup(t.Context(), client, id); err != nil || status == http.StatusNotFound {
			if refused++; refused <= 5 {
				t.Errorf("order %s exists, and its lookup got %d %q, %v", id, status, verdict, err)
			}
		}
	}
	t.Logf("%d orders were looked up at the end, %d refused", len(files), refused)
}

// checkFlood wants at least 95% of made-up lookups refused, throughout.
func (a *assault) checkFlood(t *testing.T) {
	t.Helper()
	const window = 5 // seconds
	var sum, part floodSecond
	worst := 1.0
	for i, second := range a.flood {
		sum.sent, sum.absent = sum.sent+second.sent, sum.absent+second.absent
		part.sent, part.absent = part.sent+second.sent, part.absent+second.absent
		if (i+1)%window == 0 {
			if part.sent >= 100 {
				worst = min(worst, float64(part.absent)/float64(part.sent))
			}
			part = floodSecond{}
		}
	}
	t.Logf("%d of %d made-up lookups were refused, at the worst %.1f%% of %d s", sum.absent, sum.sent, 100*worst, window)
	if sum.sent > 0 && worst < 0.95 {
		t.Errorf("only %.1f%% of made-up lookups were refused at the worst", 100*worst)
	}
}

// checkLocks wants no lock that is renewed by nobody's call, and each that is left to end.
func (a *assault) checkLocks(t *testing.T) {
	t.Helper()
	begun := time.Now()
	for time.Since(begun) < a.hold+10*time.Second {
		if len(a.locks()) == 0 {
			return
		}
		pause(t.Context(), 100*time.Millisecond)
	}
	for _, key := range a.locks() {
		t.Errorf("%s is left, for %v", key, a.redis.PTTL(t.Context(), key).Val())
	}
}

// report tells what came of it.
func (a *assault) report(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(a.counts)) {
		t.Logf("%7d %s", a.counts[what], what)
	}
	for _, what := range slices.Sorted(maps.Keys(a.took)) {
		took := a.took[what]
		slices.Sort(took)
		p99 := took[len(took)*99/100]
		t.Logf("%s: %d answers, p50 %v, p99 %v, at most %v", what, len(took), took[len(took)/2].Round(time.Millisecond),
			p99.Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
		// A bound in a short run would be one on the machine, which has other tests to run.
		if os.Getenv("SOAK") != "" && p99 > time.Second {
			t.Errorf("the p99 of people who %s is %v", what, p99)
		}
	}
}

// count counts one of what.
func (a *assault) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what]++
}

// lookup looks an order up, and returns ordergate's verdict where it answers.
func (s *site) lookup(ctx context.Context, client *http.Client, id string) (status int, verdict string, err error) {
	status, header, _, err := s.send(ctx, client, http.MethodGet, "/orders/"+id, "")
	return status, header.Get("x-ordergate-verdict"), err
}

// send makes one request.
func (s *site) send(ctx context.Context, client *http.Client, method, target, body string, header ...string) (int, http.Header, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+target, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header[header[i]] = []string{header[i+1]}
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(text), err
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// victim is the order that is attacked, and settled by its customer, for a while.
func (a *assault) victim() int { return seeded - 10_000 + int(2*time.Since(a.begun)/a.hold)%5_000 }

func settleOf(id int, query string, args ...any) string {
	return fmt.Sprintf("/orders/%d/settle", id) + fmt.Sprintf(query, args...)
}

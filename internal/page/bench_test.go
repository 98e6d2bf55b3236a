package page_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// browsers is how many have the page open in BenchmarkOpen.
const browsers = 10

// BenchmarkOpen compares seconds in which browsers have the page open with as many in which none has,
// beside 10,000 decisions a second. Their readers are in the same process, and count.
// Run it with -benchtime 30x.
func BenchmarkOpen(b *testing.B) {
	bed := start(b, "10_000,", "10_000_000,")
	bed.want("Made-up orders are refused")
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		g, log, id := bed.engine.Gate(), slog.New(slog.DiscardHandler), 0
		for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			for range 100 {
				id++
				req := order.Request{Method: "GET", Target: fmt.Sprintf("/orders/%d", id), BodyState: order.BodyComplete}
				d := g.Screen(ctx, req)
				g.ReportRefused(log, &d, &req)
			}
		}
	})
	seconds := time.Duration(b.N) * time.Second
	time.Sleep(6 * time.Second) // until no browser looks at the page
	before := cpuTime(b)
	time.Sleep(seconds)
	closed := cpuTime(b) - before

	var sent atomic.Int64
	for range browsers {
		req, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s/page/events?since=%d", bed.url, time.Now().UnixMilli()), nil)
		bedtest.Check(b, err)
		resp, err := bed.client.Do(req)
		bedtest.Check(b, err)
		wg.Go(func() {
			defer resp.Body.Close()
			_, _ = io.Copy(counter{&sent}, resp.Body) // it ends with ctx
		})
	}
	time.Sleep(2 * time.Second)
	before, sentBefore := cpuTime(b), sent.Load()
	b.ResetTimer()
	time.Sleep(seconds)
	b.StopTimer()
	open := cpuTime(b) - before
	b.ReportMetric(100*closed.Seconds()/seconds.Seconds(), "%core-closed")
	b.ReportMetric(100*(open-closed).Seconds()/seconds.Seconds(), "%core-page")
	b.ReportMetric(float64(sent.Load()-sentBefore)/seconds.Seconds()/browsers, "B/s/browser")
}

type counter struct{ *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.Add(int64(len(p)))
	return len(p), nil
}

// cpuTime returns the processor time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	bedtest.Check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestBrowserThatNeverReads opens the page's events and reads nothing, as often as it may. Other browsers
// get theirs, and after a while there is room again.
func TestBrowserThatNeverReads(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.want("Made-up orders are refused")
	host := b.url[len("http://"):]
	for range 32 {
		conn, err := net.Dial("tcp", host)
		bedtest.Check(t, err)
		defer conn.Close()
		bedtest.Check(t, conn.(*net.TCPConn).SetReadBuffer(1))
		_, err = fmt.Fprintf(conn, "GET /page/events?since=0 HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		bedtest.Check(t, err)
	}
	resp, err := b.client.Get(b.url + "/page/events?since=0")
	bedtest.Check(t, err)
	defer resp.Body.Close()
	for lines, got := bufio.NewReader(resp.Body), ""; !strings.Contains(got, `"state"`); {
		got, err = lines.ReadString('\n')
		bedtest.Check(t, err)
	}
}

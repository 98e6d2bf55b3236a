package page_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a token of many bytes"

const text = `
listen: {authz: "127.0.0.1:1", proc: "127.0.0.1:2", admin: "127.0.0.1:3"}
redis: {mode: embedded}
filters: {orders: {capacity: 10_000, sources: [seed]}}
sources: {seed: {kind: csv, path: IDS}}
locks: {settlement: {key: "order:lock:{id}"}}
rules:
- {name: look, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}
- {name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id, format: digits}, settle: {lock: settlement}}
`

// bed is an engine with its admin server.
type bed struct {
	testing.TB
	engine *engine.Engine
	url    string
	client *http.Client
}

// start starts an engine. The edits replace texts of its configuration.
func start(t testing.TB, edits ...string) *bed {
	t.Helper()
	ids := filepath.Join(t.TempDir(), "ids.csv")
	bedtest.Check(t, os.WriteFile(ids, []byte("1\n2\n3\n"), 0o600))
	yaml := strings.NewReplacer(append(edits, "IDS", ids)...).Replace(text)
	c, err := config.Parse("ordergate.yaml", []byte(yaml), func(name string) string { return map[string]string{"TOKEN": token}[name] })
	bedtest.Check(t, err)
	b := &bed{TB: t}
	b.engine, err = engine.New(t.Context(), c, "v1", slog.New(slog.DiscardHandler))
	bedtest.Check(t, err)
	server := b.engine.AdminServer(func() bool { return false })
	b.engine.Start()
	listening := httptest.NewUnstartedServer(server.Handler)
	listening.Config = server
	listening.Start()
	jar, _ := cookiejar.New(nil)
	b.url, b.client = listening.URL, &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(func() {
		b.client.CloseIdleConnections()
		bedtest.Check(t, server.Shutdown(context.Background()))
		listening.Close()
		b.engine.Close()
	})
	return b
}

// withToken has the page want a token.
var withToken = []string{"listen: {", "listen: {token_env: TOKEN, "}

func (b *bed) do(method, path string, form url.Values, header ...string) (status int, body string, got http.Header) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	bedtest.Check(b.TB, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(req)
	bedtest.Check(b.TB, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	bedtest.Check(b.TB, err)
	return resp.StatusCode, string(answer), resp.Header
}

// want asks until the page has a text.
func (b *bed) want(text string) {
	b.Helper()
	body := ""
	defer func() {
		if b.Failed() {
			b.Log(body)
		}
	}()
	bedtest.Eventually(b.TB, "the page has "+text, func() bool {
		_, body, _ = b.do("GET", "/", nil)
		return strings.Contains(body, text)
	})
}

func TestState(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.want("Made-up orders are refused, and orders are settled one call at a time.")
	_, _, header := b.do("GET", "/", nil)
	if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %q", policy)
	}
	start(t, "rules:\n- {", "rules:\n- {mode: observe, ").want("Made-up orders pass, because the rules that look orders up only observe")
}

// TestToken tries to see the page without the token.
func TestToken(t *testing.T) {
	t.Parallel()
	b := start(t, withToken...)
	for _, path := range []string{"/", "/page/events", "/page/elsewhere"} {
		if status, body, _ := b.do("GET", path, nil); status != 401 || strings.Contains(body, "orders") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	right := url.Values{"token": {token}}
	if status, _, _ := b.do("POST", "/page/sign-in", right, "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Errorf("from another site: %d", status)
	}
	if status, body, _ := b.do("POST", "/page/sign-in", right); status != 200 || !strings.Contains(body, "<h1") {
		t.Fatalf("with the token: %d %s", status, body)
	}
	b.want("Made-up orders are refused")
	site, _ := url.Parse(b.url)
	if cookies := b.client.Jar.Cookies(site); len(cookies) != 1 || strings.Contains(cookies[0].Value, "token") {
		t.Errorf("cookies: %v", cookies)
	}
	for i := range 5 {
		want := 401
		if i == 4 {
			want = 429
		}
		if status, _, _ := b.do("POST", "/page/sign-in", url.Values{"token": {"wrong"}}); status != want {
			t.Errorf("wrong token %d: %d", i, status)
		}
	}
	if status, _, header := b.do("POST", "/page/sign-in", right); status != 429 || header.Get("Retry-After") == "" {
		t.Errorf("within the pause: %d", status)
	}
}

// TestEvents reads the events of a page that is open.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.want("Made-up orders are refused")
	req, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/page/events?since=0", nil)
	bedtest.Check(t, err)
	resp, err := b.client.Do(req)
	bedtest.Check(t, err)
	defer resp.Body.Close()
	began, sent, got := time.Now(), 0, ""
	for lines := bufio.NewReader(resp.Body); !strings.Contains(got, `"filters"`); {
		line, err := lines.ReadString('\n')
		bedtest.Check(t, err)
		sent, got = sent+len(line), got+line
	}
	// A part may begin before the allowance of its second is used up.
	if most := 2000 * (time.Since(began).Seconds() + 2); float64(sent) > most {
		t.Errorf("%d bytes after %v", sent, time.Since(began))
	}
}

// TestTry explains requests: good ones, bad ones, and what is none.
func TestTry(t *testing.T) {
	t.Parallel()
	b := start(t)
	for request, want := range map[string]string{
		"POST /orders/42;x=1/settle":                                  "/orders/42<mark>;</mark>x=1/settle",
		"curl -X POST 'http://shop/orders/4%32/settle'":               "4<mark>%</mark>32",
		"GET /orders/<script>alert(1)</script>":                       "&lt;script&gt;",
		"curl http://shop/orders/7":                                   "if the order may exist",
		"POST /orders/7/settle\ncontent-type: application/json\n\n{}": "order:lock:7",
		"curl 'http://shop":                                           "is open",
	} {
		if _, body, _ := b.do("POST", "/page/try", url.Values{"request": {request}}); !strings.Contains(body, want) || strings.Contains(body, "<script>") {
			t.Errorf("%s: no %q in %s", request, want, body)
		}
	}
	if status, _, _ := b.do("POST", "/page/try", url.Values{"request": {strings.Repeat("x", 10<<20)}}); status != 413 {
		t.Errorf("10 MB: %d", status)
	}
}

// TestRelease looks at a lock that Java left, and releases it by force.
func TestRelease(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis()
	b := start(t, append([]string{"{mode: embedded}", "{addresses: [" + server.Addr() + "]}"}, withToken...)...)
	b.do("POST", "/page/sign-in", url.Values{"token": {token}})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	hold := func(owner string) { bedtest.Check(t, client.HSet(t.Context(), "order:lock:4711", owner, 1).Err()) }
	hold("0b0dd1f4-6d29-4d4b-8c7f-d5b8b1b8c7e1:52")
	b.want("order:lock:4711")
	lock := url.Values{"lock": {"settlement"}, "key": {"order:lock:4711"}}
	_, body, _ := b.do("POST", "/page/lock", lock)
	seen := regexp.MustCompile(`name="seen" value="(\w+)"`).FindStringSubmatch(body)
	if seen == nil || !strings.Contains(body, "The backend may still work on this order") {
		t.Fatal(body)
	}
	for _, tt := range []struct {
		token, reason, seen string
		status              int
	}{
		{"wrong", "gone", seen[1], 401}, {token, "", seen[1], 409}, {token, "gone", "other", 409}, {token, "the service is gone", seen[1], 200},
	} {
		form := url.Values{"token": {tt.token}, "reason": {tt.reason}, "seen": {tt.seen}, "lock": lock["lock"], "key": lock["key"]}
		if status, body, _ := b.do("POST", "/page/release", form); status != tt.status {
			t.Errorf("%+v: %d %s", tt, status, body)
		}
	}
	if n := client.Exists(t.Context(), "order:lock:4711").Val(); n != 0 {
		t.Error("the lock is still held")
	}
	b.want("No lock is held")
	_, err := client.TxPipelined(t.Context(), func(p redis.Pipeliner) error { // another instance, whose lease has ended
		p.ZAdd(t.Context(), "ordergate:{orders}:members", redis.Z{Score: float64(time.Now().Add(-time.Second).UnixMilli()), Member: "at another place#x~"})
		p.HIncrBy(t.Context(), "ordergate:{orders}:meta", "members", 1)
		p.HIncrBy(t.Context(), "ordergate:{orders}:meta", "modern", 1)
		return nil
	})
	bedtest.Check(t, err)
	b.want(`<b class="bad">at another place</b>: away since`)
	b.want("refuses for 500ms after each read")
	server.Kill()
	b.want("because Redis does not answer")
}

// TestRefusals shows which part of a refused request was wrong.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := start(t)
	g, log := b.engine.Gate(), slog.New(slog.DiscardHandler)
	for i, target := range []string{"/orders/<b>0042", "/orders/" + strings.Repeat("9", 10_000), "/orders/5;x", "/orders/5;x", "/orders/5;x"} {
		req := order.Request{Method: "GET", Target: target, Header: order.HeaderList{{"x-request-id", fmt.Sprintf("4d0e-%d", i)}}, BodyState: order.BodyComplete}
		d := g.Screen(t.Context(), req)
		if !d.Refused {
			t.Errorf("%.20s is not refused", target)
		}
		g.ReportRefused(log, &d, &req)
	}
	b.want("</b>, 3 times <code>GET /orders/5<mark>;</mark>x")
	b.want("/orders/<mark>&lt;</mark>b&gt;0042")
	b.want("9...</code>")
	b.want("request 4d0e-1")
}

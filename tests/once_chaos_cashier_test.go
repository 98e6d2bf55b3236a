package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// cashier is an order service that pays what it is asked to, as often as it is asked to, and writes down
// when. The header x-chaos says how it answers, like a query: with effect it acts, and status is that of its
// answer. The target is the same for each call for an order, as a key asks for.
type cashier struct {
	*httptest.Server
	within func(kind, order, lease string) // has a call within a call settle

	mu        sync.Mutex
	serial    int
	undos     int
	observing time.Time             // until when an instance observes
	paid      map[string][]*payment // by kind of lock, order and name of stored answers
	history   map[string][]string   // what happened to an order, by kind of lock and order
	wrong     map[string]bool
}

// payment is one effect.
type payment struct {
	serial   int
	enforced bool      // the call had the lock
	undone   time.Time // zero: it is not
	seen     time.Time // when its answer was first given again
	unclear  bool      // a call that is only observed has undone it, and nothing shows which of both came first
}

func newCashier(t testing.TB) *cashier {
	c := &cashier{paid: make(map[string][]*payment), history: make(map[string][]string), wrong: make(map[string]bool)}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

func (c *cashier) addr() string { return strings.TrimPrefix(c.URL, "http://") }

// behind starts a proxy before the cashier, as a mesh has one: it answers 503 if the cashier dies.
func (c *cashier) behind(t testing.TB) (addr string) {
	to, err := url.Parse(c.URL)
	must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.Transport = &http.Transport{DisableKeepAlives: true} // on one that is used again, it repeats requests that have a key
	proxy.ErrorLog = silent
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusServiceUnavailable) }
	s := httptest.NewUnstartedServer(proxy)
	s.Config.ErrorLog = silent
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return strings.TrimPrefix(s.URL, "http://")
}

var cashierPath = regexp.MustCompile(`^/(\w+)/(?:orders/(\d+)|batch)/(settle|both|undo|refund)$`)

// chaosCall is a request as the cashier reads it.
type chaosCall struct {
	kind, what string
	orders     []string
	enforced   bool
	sent       time.Time // by its client
}

func readChaosCall(r *http.Request) (chaosCall, bool) {
	var body struct{ IDs []json.Number }
	text, _ := io.ReadAll(r.Body)
	path := cashierPath.FindStringSubmatch(r.URL.Path)
	if path == nil {
		return chaosCall{}, false
	}
	call := chaosCall{kind: path[1], what: path[3], orders: []string{path[2]}, enforced: r.Header.Get("x-ordergate-fence") != ""}
	if path[2] == "" {
		_ = json.Unmarshal(text, &body)
		call.orders = nil
		for _, id := range body.IDs {
			call.orders = append(call.orders, id.String())
		}
	}
	sent, _ := strconv.ParseInt(chaosOf(r).Get("sent"), 10, 64)
	call.sent = time.Unix(0, sent)
	return call, true
}

func chaosOf(r *http.Request) url.Values {
	query, _ := url.ParseQuery(r.Header.Get("x-chaos"))
	return query
}

func (c *cashier) serve(w http.ResponseWriter, r *http.Request) {
	call, ok := readChaosCall(r)
	query := chaosOf(r)
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fault("the backend got %s", r.URL.Path)
		return
	}
	pause, _ := time.ParseDuration(query.Get("for"))
	time.Sleep(pause)
	serial := 0
	if query.Has("effect") {
		serial = c.act(call)
	}
	if lease := r.Header.Get(leaseHeader); query.Has("within") && lease != "" {
		c.within(call.kind, call.orders[0], lease)
	}
	if query.Has("die") {
		panic(http.ErrAbortHandler)
	}
	if query.Has("hang") {
		<-r.Context().Done()
		return
	}
	status, _ := strconv.Atoi(query.Get("status"))
	if call.enforced {
		w.Header().Set("x-enforced", "yes")
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, "%d", serial)
	for begun := time.Now(); query.Has("stream") && call.enforced && r.Context().Err() == nil; {
		_, _ = io.WriteString(w, " ")
		w.(http.Flusher).Flush()
		time.Sleep(20 * time.Millisecond)
		if lasts := time.Since(begun); lasts > chaosMaxHold+chaosLate {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fault("%s order %s is answered for %v (%s)", call.kind, call.orders[0], lasts, call.what)
			return
		}
	}
}

// fault notes that something is wrong. The caller holds the mutex.
func (c *cashier) fault(format string, values ...any) {
	c.wrong[fmt.Sprintf(format, values...)] = true
}

// note adds to the history of a call's orders. The caller holds the mutex.
func (c *cashier) note(call chaosCall, format string, values ...any) {
	at := time.Now().Format("05.000 ")
	for _, order := range call.orders {
		c.history[call.kind+order] = append(c.history[call.kind+order], at+call.what+" "+fmt.Sprintf(format, values...))
	}
}

// names are those of stored answers: a batch has that of its orders.
var names = []string{"settle", "both"}

// act pays or undoes, and notes a payment that was made before and not undone. While a call is only
// observed, nothing keeps it from paying twice.
func (c *cashier) act(call chaosCall) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !call.enforced && now.After(c.observing) {
		c.fault("%s %v reached the backend without a lock (%s)", call.kind, call.orders, call.what)
	}
	if !slices.Contains(names, call.what) {
		c.undos++
		c.note(call, "acts %v: %v", call.enforced, call.orders)
		for _, order := range call.orders {
			for _, name := range names {
				for _, p := range c.paid[call.kind+order+name] {
					switch {
					case !p.undone.IsZero():
					case call.enforced, !p.seen.IsZero() && p.seen.Before(call.sent):
						p.undone = now
					default:
						p.unclear = true
					}
				}
			}
		}
		return 0
	}
	c.serial++
	c.note(call, "acts %v: %v %d", call.enforced, call.orders, c.serial)
	for _, order := range call.orders {
		at := call.kind + order + call.what
		for _, p := range c.paid[at] {
			if call.enforced && p.enforced && p.undone.IsZero() && !p.unclear {
				c.fault("%s order %s was paid twice (%s %d, %d)", call.kind, order, call.what, p.serial, c.serial)
			}
		}
		c.paid[at] = append(c.paid[at], &payment{serial: c.serial, enforced: call.enforced})
	}
	return c.serial
}

// replayed notes an answer that was given again although its payment was undone before it was asked
// for, or is that of another order.
func (c *cashier) replayed(call chaosCall, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, order := range call.orders {
		found := false
		for _, p := range c.paid[call.kind+order+call.what] {
			if strconv.Itoa(p.serial) != body {
				continue
			}
			found = true
			if p.seen.IsZero() {
				p.seen = time.Now()
			}
			if !p.undone.IsZero() && p.undone.Before(call.sent) {
				c.fault("%s order %s is reported as paid (%s %d), %v after that was undone",
					call.kind, order, call.what, p.serial, call.sent.Sub(p.undone))
			}
		}
		if !found {
			c.fault("%s order %s got the answer of another (%s): %q", call.kind, order, call.what, body)
		}
	}
}

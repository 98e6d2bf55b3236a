package gate_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// TestOnceAfterALoss has an answer cross the end of the lease: it is stored.
func TestOnceAfterALoss(t *testing.T) {
	lock, record := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}, &gatetest.Recorder{}
	g := settleOnce(t, lock, record)
	c := g.Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
	gatetest.Settle(t.Context(), c)
	if c.On(gate.Event{Kind: gate.LeaseLost}).Do != gate.Refuse {
		t.Fatal("the call goes on")
	}
	step := gatetest.Answer(c, &gate.Response{Status: 204, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{}, Ended: true})
	if step.Work != gate.Store {
		t.Fatalf("%+v, %q", step, record.Lines())
	}
	gatetest.Work(t.Context(), c, step)
	gatetest.End(c)
	if len(lock.Texts) != 1 || !strings.Contains(lock.Texts["42 n"], `"status":204`) {
		t.Errorf("stored are %q", lock.Texts)
	}
}

// TestEndIsHeld has Envoy show more of an answer, or answer by itself, while the end waits until the answer is
// stored, or the order known: nothing passes before.
func TestEndIsHeld(t *testing.T) {
	lock := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}
	settle := settleOnce(t, lock, &gatetest.Recorder{}).Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
	gatetest.Settle(t.Context(), settle)
	create, _ := newCreate(t, inBody, "/orders")
	for work, c := range map[gate.Work]*gate.Call{gate.Store: settle, gate.LearnOrder: create} {
		gatetest.Answer(c, &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{{"content-length", "8"}}})
		step := c.On(gate.Event{Kind: gate.ResponseBody, Body: []byte(`{"id":8}`), End: work == gate.LearnOrder})
		if step.Do != gate.Wait || step.Work != work {
			t.Fatalf("%+v", step)
		}
		for _, e := range []gate.Event{
			{Kind: gate.ResponseBody, End: true}, {Kind: gate.ResponseTrailers},
			{Kind: gate.ResponseHeaders, Response: &gate.Response{Status: 504, Details: "response_timeout", Attempts: 1}},
		} {
			if more := c.On(e); more.Do != gate.Wait || more.Work != gate.NoWork {
				t.Errorf("event %d during work %d: %+v", e.Kind, work, more)
			}
		}
		if step = gatetest.Work(t.Context(), c, step); step.Do != gate.PassResponse {
			t.Errorf("after work %d: %+v", work, step)
		}
		gatetest.End(c)
	}
	if got := lock.Journal.Short(); got != "acquire 42, store n, release" {
		t.Errorf("the lock: %q", got)
	}
}

// TestOnceIsDecidedOnce reports the end of an answer twice: by its Content-Length, and by Envoy.
func TestOnceIsDecidedOnce(t *testing.T) {
	record := &gatetest.Recorder{}
	g := settleOnce(t, &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}, record)
	c := g.Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
	gatetest.Settle(t.Context(), c)
	gatetest.Answer(c, &gate.Response{Status: 400, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{{"content-length", "2"}}})
	var log strings.Builder
	g.LogProblems(gate.NewProblems(slog.New(slog.NewTextHandler(&log, nil))))
	c.On(gate.Event{Kind: gate.ResponseBody, Body: []byte("no")})
	if log.Len() == 0 {
		t.Error("it is not decided by its Content-Length")
	}
	gatetest.Finish(c)
	gatetest.End(c)
	n := 0
	for _, line := range record.Lines() {
		if strings.Contains(line, "once") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("counted %q", record.Lines())
	}
}

// TestOnceVaries stores answers that vary by headers of their request: they are given again to
// calls with the same ones.
func TestOnceVaries(t *testing.T) {
	origin := func(values ...string) (list order.HeaderList) {
		for _, v := range values {
			list = append(list, [2]string{"origin", v})
		}
		return list
	}
	const spring = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
	for _, tt := range []struct {
		name, vary    string
		first, second order.HeaderList
		want          gate.Verdict
	}{
		{"without these headers", spring, order.HeaderList{}, order.HeaderList{{"accept", "*/*"}}, gate.VerdictReplayed},
		{"with the same ones", spring, origin("https://shop"), origin("https://shop"), gate.VerdictReplayed},
		{"from another origin", spring, origin("https://shop"), origin("https://evil"), gate.VerdictDuplicate},
		{"from an origin", spring, order.HeaderList{}, origin("https://evil"), gate.VerdictDuplicate},
		{"from no origin", spring, origin("https://shop"), order.HeaderList{}, gate.VerdictDuplicate},
		{"in other lines", "origin", origin("a", "b"), origin("ab"), gate.VerdictDuplicate},
		{"by another spelling", "Origin", origin("a"), order.HeaderList{{"origin", "a"}, {"ORIGIN", "b"}}, gate.VerdictDuplicate},
		{"by what it does not vary by", "Accept-Language", origin("a"), origin("b"), gate.VerdictReplayed},
		{"by anything", "*", order.HeaderList{}, order.HeaderList{}, gate.VerdictDuplicate},
		{"by a header that is not compared", "Origin, X-Tenant", order.HeaderList{}, order.HeaderList{}, gate.VerdictDuplicate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lock := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}
			g := settleOnce(t, lock, &gatetest.Recorder{})
			c := g.Open(order.Request{Method: "POST", Target: "/orders/42/settle", Header: tt.first, BodyState: order.BodyComplete})
			gatetest.Settle(t.Context(), c)
			step := gatetest.Answer(c, &gate.Response{Status: 204, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{{"vary", tt.vary}}, Ended: true})
			if step.Work != gate.Store {
				t.Fatalf("%+v", step)
			}
			gatetest.Work(t.Context(), c, step)
			gatetest.End(c)
			again := g.Open(order.Request{Method: "POST", Target: "/orders/42/settle", Header: tt.second, BodyState: order.BodyComplete})
			gatetest.Settle(t.Context(), again)
			if got := again.Decision.Verdict; got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestKeyOfAnotherOrder has a key come again with another order, at another host, and when the order was undone
// since, or that is unknown, under a rule that compares nothing else of requests.
func TestKeyOfAnotherOrder(t *testing.T) {
	lock, keys := &gatetest.Lock{Journal: &gatetest.Journal{}}, &gatetest.Lock{Journal: &gatetest.Journal{}, Name: "key", Texts: make(map[string]string)}
	g := settleOnce(t, lock, gatetest.Silent{})
	keyed := *g.Policies()[0].Settle.Once
	keyed.Key = &gate.OnceKey{Lock: keys, Parts: []string{"idempotency-key"}}
	g.Policies()[0].Settle.Once, g.Policies()[0].Once = nil, &keyed
	for _, tt := range []struct {
		host, id string
		undo     error
		want     gate.Verdict
	}{
		{"shop", "42", nil, gate.VerdictAcquired}, {"shop", "42", nil, gate.VerdictReplayed}, {"SHOP", "42", nil, gate.VerdictReplayed},
		{"shop", "43", nil, gate.VerdictMismatch}, {"other", "42", nil, gate.VerdictMismatch},
		{"shop", "42", gatetest.ErrUndone, gate.VerdictDuplicate}, {"shop", "42", errors.New("away"), gate.VerdictUnavailable},
	} {
		lock.Undo = tt.undo
		c := g.Open(order.Request{
			Method: "POST", Host: tt.host, Target: "/orders/" + tt.id + "/settle", BodyState: order.BodyComplete,
			Header: order.HeaderList{{"idempotency-key", `"k"`}},
		})
		if gatetest.Settle(t.Context(), c); c.Decision.Verdict != tt.want {
			t.Errorf("order %s at %s: %s, want %s", tt.id, tt.host, c.Decision.Verdict, tt.want)
		}
		if tt.want == gate.VerdictAcquired {
			gatetest.Work(t.Context(), c, gatetest.Answer(c, &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{}, Ended: true}))
		}
		gatetest.End(c)
	}
}

// TestKeyWithinAnUndo has a call with a key within another one, which may be about to undo what was settled
// before: its answer counts from above the marks of that one.
func TestKeyWithinAnUndo(t *testing.T) {
	for mark, want := range map[int64]string{0: `"fences":[7]`, 9: `"fences":[9]`} {
		lock, keys := &gatetest.Lock{Journal: &gatetest.Journal{}, Enters: "outer", Mark: mark}, &gatetest.Lock{Texts: make(map[string]string)}
		g := settleOnce(t, lock, gatetest.Silent{})
		keyed := *g.Policies()[0].Settle.Once
		keyed.Key = &gate.OnceKey{Lock: keys, Parts: []string{"idempotency-key"}}
		g.Policies()[0].Settle.Once, g.Policies()[0].Once = nil, &keyed
		c := g.Open(order.Request{
			Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete,
			Header: order.HeaderList{{"idempotency-key", `"k"`}, {gate.HeaderLease, "outer"}},
		})
		gatetest.Settle(t.Context(), c)
		gatetest.Work(t.Context(), c, gatetest.Answer(c, &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{}, Ended: true}))
		if text := fmt.Sprint(keys.Texts); !strings.Contains(text, want) {
			t.Errorf("stored are %s, want %s", text, want)
		}
		if !lock.Requests()[0].Keyed {
			t.Error("it enters beside a call that undoes")
		}
	}
}

// TestOnceBySessionInPath has callers whose session is in the link: each gets its own answer alone.
func TestOnceBySessionInPath(t *testing.T) {
	lock := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}
	g := settleOnce(t, lock, &gatetest.Recorder{})
	g.Policies()[0].Settle.Once.Scope = []string{"authorization", "cookie"}
	open := func(target string, header order.HeaderList) (*gate.Call, gate.Step) {
		c := g.Open(order.Request{Method: "POST", Target: target, Header: header, BodyState: order.BodyComplete})
		return c, gatetest.Settle(t.Context(), c)
	}
	settle := func(target string, header order.HeaderList) {
		c, _ := open(target, header)
		step := gatetest.Answer(c, &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{}, Ended: true})
		if step.Work != gate.Store {
			t.Fatal("the answer is not stored")
		}
		gatetest.Work(t.Context(), c, step)
		gatetest.End(c)
	}
	settle("/orders/42/settle;jsessionid=4F?a=1", nil)
	for target, want := range map[string]gate.Verdict{
		"/orders/42/settle;jsessionid=4F?a=1": gate.VerdictReplayed, "/orders/42/settle;jsessionid=4F": gate.VerdictReplayed,
		"/orders/42/settle;jsessionid=5F?a=1": gate.VerdictDuplicate, "/orders/42/settle": gate.VerdictDuplicate,
	} {
		if c, step := open(target, nil); c.Decision.Verdict != want {
			t.Errorf("%s: %s, want %s: %+v", target, c.Decision.Verdict, want, step)
		}
	}
	cookie := order.HeaderList{{"cookie", "a=b; JSESSIONID=6F"}} // a servlet container takes it first
	settle("/orders/43/settle;jsessionid=4F", cookie)
	if c, step := open("/orders/43/settle", cookie); c.Decision.Verdict != gate.VerdictReplayed {
		t.Errorf("with a cookie: %s: %+v", c.Decision.Verdict, step)
	}
}

// TestOnceByARepeat has two clicks on a form, and a call by the same key: clients change the time of
// jQuery, and the boundary of multipart.
func TestOnceByARepeat(t *testing.T) {
	lock := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}
	g := settleOnce(t, lock, &gatetest.Recorder{})
	once := g.Policies()[0].Settle.Once
	once.Fingerprint, once.Meanwhile = true, true
	g.Policies()[0].Once = &gate.Once{Name: "k", Key: &gate.OnceKey{Lock: lock, Parts: []string{"x-user", ""}}}
	open := func(query, field, boundary string) string {
		c := g.Open(order.Request{
			Method: "POST", Target: "/orders/42/settle" + query, BodyState: order.BodyComplete,
			Header: order.HeaderList{{"x-user", "u"}, {"content-type", `multipart/form-data; boundary="` + boundary + `"`}},
			Body:   []byte("--" + boundary + "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + field + "\r\n--" + boundary + "--\r\n"),
		})
		return fmt.Sprint(c.AnswerPlaces())
	}
	first := open("?b=c&_=1", "x", "----form1")
	if second := open("?b=c&_=2", "x", "----form2"); second != first {
		t.Errorf("the second click is another request: %s, %s", first, second)
	}
	if other := open("?b=c&_=1", "y", "----form1"); other == first {
		t.Error("another form is a repeat")
	}
	g.Policies()[0].Settle = nil
	if d := g.Screen(t.Context(), order.Request{Method: "GET", Target: "/orders/42/settle"}); d.Verdict != gate.VerdictAmbiguous || d.Action != gate.ActionOnce {
		t.Errorf("another method of a rule that only stores answers: %v, %v", d.Verdict, d.Action)
	}
}

// TestOnceByToken has tokens of one lock: the answer is for those that sent the same.
func TestOnceByToken(t *testing.T) {
	lock := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}
	token := func(in order.Location, name string) order.ID {
		return order.ID{In: in, Name: name, Format: order.Format{Kind: order.Hashed, AsHeader: in == order.InHeader}}
	}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "confirm", Methods: []string{"POST"}, Path: "/confirm",
			IDs: []order.ID{token(order.InHeader, "authorization")}, Parts: []order.Part{{Name: "by1", ID: token(order.InCookie, "t")}},
		},
		Settle: &gate.Settle{Lock: lock, Once: &gate.Once{
			Name: "n", Meanwhile: true, Keep: time.Hour, MaxBody: 100, Stores: func(int) bool { return true },
		}},
	}}, &gatetest.Recorder{})
	const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9."
	confirm := func(header, cookie string) *gate.Call {
		c := g.Open(order.Request{
			Method: "POST", Target: "/confirm", BodyState: order.BodyComplete,
			Header: order.HeaderList{{"authorization", header}, {"cookie", "a=b; t=" + cookie}},
		})
		if gatetest.Settle(t.Context(), c); c.Decision.Verdict == gate.VerdictAcquired {
			gatetest.Work(t.Context(), c, gatetest.Answer(c, &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{}, Ended: true}))
			gatetest.End(c)
		}
		return c
	}
	for _, r := range []struct {
		header, cookie string
		want           gate.Verdict
	}{
		{"Bearer " + jwt + "sign", jwt + "sign", gate.VerdictAcquired},
		{"Bearer " + jwt + "sign", jwt + "SIGN", gate.VerdictReplayed},
		{"Bearer " + jwt + "forged", jwt + "sign", gate.VerdictDuplicate},
		{"Bearer " + jwt + "sign", jwt + "forged", gate.VerdictDuplicate},
	} {
		if c := confirm(r.header, r.cookie); c.Decision.Verdict != r.want {
			t.Errorf("%s, %s: %s, want %s", r.header, r.cookie, c.Decision.Verdict, r.want)
		}
	}
}

// TestRemovedOptions has calls that act by GET, enforced and observed: an observed one keeps its preconditions.
func TestRemovedOptions(t *testing.T) {
	for _, observe := range []bool{false, true} {
		g := gatetest.Gate(t, []gate.Policy{{
			Rule:    order.Rule{Name: "confirm", Methods: []string{"GET"}, Path: "/orders/{id}/confirm", IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}}},
			Settle:  &gate.Settle{Lock: &gatetest.Lock{}, Once: &gate.Once{Name: "n", Stores: func(int) bool { return true }}},
			Observe: observe,
		}}, gatetest.Silent{})
		step := gatetest.Settle(t.Context(), g.Open(order.Request{Method: "GET", Target: "/orders/42/confirm", BodyState: order.BodyComplete}))
		removed := gate.AnswerOptions[:step.Options]
		if slices.Contains(removed, "if-none-match") == observe || !slices.Contains(removed, "accept-encoding") {
			t.Errorf("observed %t: removed %v", observe, removed)
		}
	}
}

// TestObservedUndoGoesOn has Redis not reply to an observed call that marks what it undoes: it goes on
// before Envoy gives up.
func TestObservedUndoGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := &gatetest.Lock{Journal: &gatetest.Journal{}, Grants: make(chan error)}
		g := gatetest.Gate(t, []gate.Policy{{
			Rule: order.Rule{
				Name: "undo", Methods: []string{"POST"}, Path: "/orders/{id}/undo", Backend: order.Tomcat,
				IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}},
			},
			Settle:  &gate.Settle{Lock: lock, Once: &gate.Once{Forget: []string{gate.AllAnswers}, Keep: time.Hour, Stores: func(int) bool { return true }}},
			Observe: true,
		}}, gatetest.Silent{})
		c, begun := g.Open(order.Request{Method: "POST", Target: "/orders/42/undo", BodyState: order.BodyComplete}), time.Now()
		step := gatetest.Settle(t.Context(), c)
		if took := time.Since(begun); step.Do != gate.PassRequest || took > 3*time.Second {
			t.Errorf("after %v: %+v", took, step)
		}
		gatetest.End(c)
	})
}

// settleOnce is a gate with one rule that stores answers of 2xx.
func settleOnce(t *testing.T, lock *gatetest.Lock, record gate.Recorder) *gate.Gate {
	t.Helper()
	g := gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", Backend: order.Tomcat,
			IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}},
		},
		Settle: &gate.Settle{Lock: lock, Once: &gate.Once{
			Name: "n", Keep: time.Hour, MaxBody: 100, Stores: func(status int) bool { return status/100 == 2 },
		}},
	}}, record)
	return g
}

package extauthz

import (
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

// withAbsent returns the gate of newServer with another answer to absent orders, and
// with its rules behind so many others.
func withAbsent(t *testing.T, s *Server, code, shift int) *gate.Gate {
	t.Helper()
	policies := slices.Clone(s.current.Load().gate.Policies())
	lookup := *policies[0].Lookup
	lookup.Absent = gate.Reply{Status: code, Body: strconv.Itoa(code)}
	policies[0].Lookup = &lookup
	for i := range shift {
		p := policies[len(policies)-1]
		p.Rule.Name, p.Rule.Path = "shift-"+strconv.Itoa(i), "/shift-"+strconv.Itoa(i)
		policies = append([]gate.Policy{p}, policies...)
	}
	g, err := gate.New(policies, gatetest.Silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestUse changes the gate while checks are answered: each goes by one gate, whose rules
// have other places than those of the other.
func TestUse(t *testing.T) {
	s := newServer(t)
	client := authv3.NewAuthorizationClient(dial(t, s))
	web := httptest.NewServer(s.HTTPHandler())
	defer web.Close()
	addr := web.Listener.Addr().String()
	gates := []*gate.Gate{withAbsent(t, s, 404, 0), withAbsent(t, s, 410, 3)}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 200 {
				r, err := client.Check(t.Context(), checkRequest("/orders/43", nil))
				if err != nil {
					t.Error(err)
					return
				}
				code, body := r.GetDeniedResponse().GetStatus().GetCode(), r.GetDeniedResponse().GetBody()
				if code != 404 && code != 410 || body != strconv.Itoa(int(code)) && code == 410 {
					t.Errorf("answered %d %q", code, body)
				}
				if got, _ := ask(t, addr, subrequest("GET", "/check/envoy/orders/43")); got.Status != 404 && got.Status != 410 {
					t.Errorf("over HTTP: %+v", got)
				}
			}
		})
	}
	stop, changing := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changing)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Use(gates[i%2]); err != nil {
				t.Error(err)
			}
		}
	}()
	group.Wait()
	close(stop)
	<-changing
	for i, want := range []int{404, 410} {
		if err := s.Use(gates[i]); err != nil {
			t.Fatal(err)
		}
		if got, _ := ask(t, addr, subrequest("GET", "/check/envoy/orders/43")); got.Status != want {
			t.Errorf("gate %d answers %d", i, got.Status)
		}
	}
}

// TestAnswersOutliveTheirRule has nginx request an answer whose rule a reload has removed since
// the check.
func TestAnswersOutliveTheirRule(t *testing.T) {
	s := newServer(t)
	web := httptest.NewServer(s.HTTPHandler())
	defer web.Close()
	addr := web.Listener.Addr().String()
	checked, _ := ask(t, addr, nginxAsks("/orders/43"))
	empty, err := gate.New(nil, gatetest.Silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{404, 500} { // behind the second, it is two gates ago
		if err := s.Use(empty); err != nil {
			t.Fatal(err)
		}
		if got, _ := ask(t, addr, subrequest("GET", checked.Answer)); got.Status != want {
			t.Errorf("%s: %+v, want %d", checked.Answer, got, want)
		}
	}
}

// TestUseOfABadGate checks that the gate before stays.
func TestUseOfABadGate(t *testing.T) {
	s := newServer(t)
	policies := slices.Clone(s.current.Load().gate.Policies())
	policies[0].Invalid.Body = "\xff"
	g, err := gate.New(policies, gatetest.Silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	before := s.current.Load()
	if err := s.Use(g); err == nil || s.current.Load() != before {
		t.Errorf("got %v", err)
	}
	if _, err := authv3.NewAuthorizationClient(dial(t, s)).Check(t.Context(), checkRequest("/orders/43", nil)); status.Code(err) != codes.OK {
		t.Error(err)
	}
}

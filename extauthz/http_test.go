package extauthz

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// httpAnswer is what a proxy gets.
type httpAnswer struct {
	Status  int
	Verdict string
	Answer  string // x-ordergate-answer
	Body    string
}

// ask sends a request as it is written, without a client library that would
// clean it.
func ask(t *testing.T, addr, request string) (httpAnswer, http.Header) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return httpAnswer{resp.StatusCode, resp.Header.Get(gate.HeaderVerdict), resp.Header.Get(headerAnswer), string(body)}, resp.Header
}

// subrequest writes a request with these header lines besides the host.
func subrequest(method, target string, lines ...string) string {
	return method + " " + target + " HTTP/1.1\r\n" + strings.Join(append([]string{"Host: shop"}, lines...), "\r\n") + "\r\n\r\n"
}

func nginxAsks(target string, lines ...string) string {
	return subrequest("GET", "/check/nginx", append(lines, "X-Original-URI: "+target, "X-Original-Method: GET")...)
}

func traefikAsks(target string, lines ...string) string {
	return subrequest("GET", "/check/forward-auth", append(lines, "X-Forwarded-Uri: "+target, "X-Forwarded-Method: GET", "X-Forwarded-Host: shop")...)
}

func serveHTTP(t *testing.T) (addr string) {
	t.Helper()
	server := httptest.NewServer(newServer(t).HTTPHandler())
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// serveGate serves other policies than newServer's.
func serveGate(t *testing.T, policies []gate.Policy) (addr string) {
	t.Helper()
	g, err := gate.New(policies, gatetest.Silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(g)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.HTTPHandler())
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestHTTPCheck(t *testing.T) {
	addr := serveHTTP(t)
	absent := httpAnswer{404, "absent", "", `{"error":"no such order"}`}
	invalid := httpAnswer{400, "invalid", "", `{"error":"malformed"}`}
	exists, unknown, unruled := httpAnswer{200, "maybe", "", ""}, httpAnswer{200, "unknown", "", ""}, httpAnswer{200, "", "", ""}
	ambiguous := httpAnswer{400, "ambiguous", "", invalid.Body}
	forNginx := func(verdict, answer string) httpAnswer { return httpAnswer{403, verdict, "/answer/" + answer, ""} }
	forged := httpAnswer{400, "ambiguous", "", `{"error":"a header may be read as one of ordergate's","part":"header"}`}
	unnamed := httpAnswer{400, "", "", "ordergate: the headers that name the original request have to be there exactly once each, and name a path: have the proxy set them\n"}
	misdirected := httpAnswer{500, "", "", "ordergate: nothing is decided at this path: send sub-requests to /check/envoy, /check/nginx or /check/forward-auth\n"}

	tests := []struct {
		name, request string
		want          httpAnswer
	}{
		{"envoy, exists", subrequest("GET", "/check/envoy/orders/42"), exists},
		{"envoy, absent", subrequest("GET", "/check/envoy/orders/43?a=b"), absent},
		{"envoy, HEAD", subrequest("HEAD", "/check/envoy/orders/43"), httpAnswer{404, "absent", "", ""}},
		{"envoy, unknown", subrequest("GET", "/check/envoy/orders/7"), unknown},
		{"envoy, malformed", subrequest("GET", "/check/envoy/orders/4x"), invalid},
		{"envoy, not decoded", subrequest("GET", "/check/envoy/orders/%34%33"), invalid},
		{"envoy, not cleaned", subrequest("GET", "/check/envoy/a/../orders/43"), ambiguous},
		{"envoy, other method", subrequest("PUT", "/check/envoy/orders/43", "Content-Length: 0"), ambiguous},
		{"envoy, with a body", subrequest("GET", "/check/envoy/orders/43", "Content-Length: 2") + "43", absent},
		{"envoy, OPTIONS *", subrequest("OPTIONS", "/check/envoy*"), unruled},
		{"envoy, by header", subrequest("GET", "/check/envoy/order", "X-Order: 43"), absent},
		{"envoy, header missing", subrequest("GET", "/check/envoy/order"), invalid},
		{"envoy, header twice", subrequest("GET", "/check/envoy/order", "X-Order: 43", "x-order: 42"), ambiguous},
		{"envoy, another's headers", subrequest("GET", "/check/envoy/orders/43", "X-Original-URI: /orders/42", "X-Forwarded-Uri: /orders/42"), absent},

		{"nginx, exists", nginxAsks("/orders/42"), exists},
		{"nginx, absent", nginxAsks("/orders/43"), forNginx("absent", "path/absent")},
		{"nginx, unknown", nginxAsks("/orders/7"), unknown},
		{"nginx, malformed", nginxAsks("/orders/4x"), forNginx("invalid", "path/malformed_id")},
		{"nginx, not decoded", nginxAsks("/orders/%34%33"), forNginx("invalid", "path/malformed_id")},
		{"nginx, not cleaned", nginxAsks("//orders/43"), forNginx("ambiguous", "path/path_near")},
		{"nginx, no rule", nginxAsks("/other"), unruled},
		{"nginx, a client's override", nginxAsks("/orders/42", "X-Original-URL: /orders/43"), forNginx("ambiguous", "path/url_override")},
		{"nginx, by header", nginxAsks("/order", "x-order: 43"), forNginx("absent", "header/absent")},
		{"nginx, header twice", nginxAsks("/order", "X-Order: 42", "X-Order: 42"), forNginx("ambiguous", "header/repeated_id")},
		{"nginx, other method", subrequest("GET", "/check/nginx", "X-Original-URI: /orders/43", "X-Original-Method: PUT"), forNginx("ambiguous", "path/other_method")},
		{"nginx, method in lower case", subrequest("GET", "/check/nginx", "X-Original-URI: /orders/43", "X-Original-Method: get"), forNginx("ambiguous", "path/other_method")},
		{"nginx, no URI", subrequest("GET", "/check/nginx", "X-Original-Method: GET"), unnamed},
		{"nginx, empty URI", nginxAsks(""), unnamed},
		{"ingress-nginx", subrequest("GET", "/check/nginx", "X-Original-URL: https://shop.example:8443/orders/43?a=/b", "X-Original-Method: GET"), forNginx("absent", "path/absent")},
		{"ingress-nginx, no path", subrequest("GET", "/check/nginx", "X-Original-URL: https://shop.example", "X-Original-Method: GET"), unnamed},
		{"nginx, two URIs", nginxAsks("/orders/43", "X-Original-URI: /orders/42"), unnamed},
		{"nginx, no method", subrequest("GET", "/check/nginx", "X-Original-URI: /orders/43"), unnamed},
		{"nginx, two methods", nginxAsks("/orders/43", "X-Original-Method: PUT"), unnamed},
		{"nginx, another's headers", subrequest("GET", "/check/nginx", "X-Forwarded-Uri: /orders/42", "X-Forwarded-Method: GET"), unnamed},

		{"traefik, exists", traefikAsks("/orders/42"), exists},
		{"traefik, absent", traefikAsks("/orders/43"), absent},
		{"traefik, malformed", traefikAsks("/orders/4x"), invalid},
		{"traefik, not decoded", traefikAsks("/orders/%34%33"), invalid},
		{"traefik, no rule", traefikAsks("/other"), unruled},
		{"traefik, by header", traefikAsks("/order", "X-Order: 43"), absent},
		{"traefik, two URIs", traefikAsks("/orders/43", "X-Forwarded-Uri: /orders/42"), unnamed},
		{"traefik, two hosts", traefikAsks("/orders/43", "X-Forwarded-Host: shop"), unnamed},
		{"traefik, no host", subrequest("GET", "/check/forward-auth", "X-Forwarded-Uri: /orders/43", "X-Forwarded-Method: GET"), unnamed},
		{"traefik, an empty host", subrequest("GET", "/check/forward-auth", "X-Forwarded-Uri: /orders/43", "X-Forwarded-Method: GET", "X-Forwarded-Host:"), absent},
		{"traefik, no path", traefikAsks("orders/43"), unnamed},
		{"traefik, an origin", traefikAsks("http://shop/orders/43"), unnamed},
		{"traefik, no path but *", traefikAsks("*"), unruled},
		{"traefik, another's headers", traefikAsks("/orders/43", "X-Original-URI: /orders/42"), absent},

		{"forged, under no rule", traefikAsks("/other", "X.Ordergate.Fence: 9"), forged},
		{"forged, with an underscore", traefikAsks("/other", "X_Ordergate_Fence: 9"), forged},
		{"forged, for clients only", traefikAsks("/orders/42", "x-ordergate-settled-at: 9"), forged},
		{"forged, of an absent order", traefikAsks("/orders/43", "x-ordergate-settled-at: 9"), absent},
		{"forged, by envoy", subrequest("GET", "/check/envoy/other", "x-ordergate-lease-lost: true"), forged},
		{"forged, by nginx", nginxAsks("/other", "x-ordergate-settled-at: 9"), forNginx("ambiguous", "forged")},
		{"the answer to it", subrequest("GET", "/answer/forged"), forged},
		{"what the proxy overwrites", nginxAsks("/other", "x-ordergate-fence: 9", "x-ordergate-key: 9", "x-ordergate-lease: 9", "x-ordergate-verdict: 9"), unruled},

		{"the answer for nginx", subrequest("GET", "/answer/path/absent"), absent},
		{"the answer for nginx to a POST", subrequest("POST", "/answer/path/malformed_id"), invalid},
		{"no such answer", subrequest("GET", "/answer/path/maybe"), misdirected},
		{"no such path", subrequest("GET", "/orders/43"), misdirected},
		{"no path behind envoy's", subrequest("GET", "/check/envoy"), misdirected},
		{"wrong prefix", subrequest("GET", "/check/envoys/orders/43"), misdirected},
		{"path behind nginx's", subrequest("GET", "/check/nginx/orders/43"), misdirected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := ask(t, addr, tt.request)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error("answer (-want +got):\n" + diff)
			}
		})
	}
}

// TestHTTPHosts checks where a rule's host is looked for.
func TestHTTPHosts(t *testing.T) {
	s := newServer(t)
	policies := slices.Clone(s.current.Load().gate.Policies())
	policies[0].Rule.Host = "shop"
	addr := serveGate(t, policies)
	for request, want := range map[string]int{
		subrequest("GET", "/check/envoy/orders/43"):                                                        404,
		strings.Replace(subrequest("GET", "/check/envoy/orders/43"), "shop", "other", 1):                   200,
		strings.Replace(nginxAsks("/orders/43"), "shop", "other", 1):                                       200,
		nginxAsks("/orders/43", "X-Forwarded-Host: other"):                                                 403,
		strings.Replace(traefikAsks("/orders/43"), "Host: shop", "Host: 127.0.0.1", 1):                     404,
		strings.Replace(traefikAsks("/orders/43"), "X-Forwarded-Host: shop", "X-Forwarded-Host: other", 1): 200,
	} {
		if got, _ := ask(t, addr, request); got.Status != want {
			t.Errorf("%q: status %d, want %d", request, got.Status, want)
		}
	}
}

// TestHTTPDenial checks all that a client gets, and that an answer is not changed
// by being sent.
func TestHTTPDenial(t *testing.T) {
	addr := serveHTTP(t)
	want := http.Header{
		"Content-Type": {"application/json"}, "X-Ordergate-Verdict": {"absent"}, "Cache-Control": {"no-store"},
		"Content-Length": {strconv.Itoa(len(`{"error":"no such order"}`))},
	}
	for range 3 {
		_, got := ask(t, addr, traefikAsks("/orders/43"))
		got.Del("Date")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error("headers (-want +got):\n" + diff)
		}
	}
}

// TestHTTPHeadHasNoBody keeps a HEAD from desynchronizing the proxy's connection.
func TestHTTPHeadHasNoBody(t *testing.T) {
	addr := serveHTTP(t)
	got, header := ask(t, addr, subrequest("HEAD", "/answer/path/absent"))
	if diff := cmp.Diff(httpAnswer{404, "absent", "", ""}, got); diff != "" {
		t.Error("answer (-want +got):\n" + diff)
	}
	if header.Get("Content-Length") == "0" {
		t.Error("HEAD tells another length than GET")
	}
}

// TestHTTPUnseenBody checks that a rule whose ID is in the body, which no
// sub-request has, refuses nothing, whatever the sub-request says of its own body.
func TestHTTPUnseenBody(t *testing.T) {
	policies := slices.Clone(newServer(t).current.Load().gate.Policies())
	policies[0].Rule.Path = "/orders"
	policies[0].Rule.Methods = []string{"POST"}
	policies[0].Rule.IDs = []order.ID{{In: order.InJSON, Members: []string{"id"}, MaxBody: 1 << 10, Format: policies[0].Rule.IDs[0].Format}}
	addr := serveGate(t, policies)
	const json = "Content-Type: application/json"
	for _, request := range []string{
		subrequest("POST", "/check/envoy/orders", json, "Content-Length: 0"),
		subrequest("POST", "/check/envoy/orders", json, "Content-Length: 9") + `{"id":43}`,
		subrequest("GET", "/check/nginx", json, "X-Original-URI: /orders", "X-Original-Method: POST"),
		subrequest("GET", "/check/forward-auth", json, "X-Forwarded-Uri: /orders", "X-Forwarded-Method: POST", "X-Forwarded-Host: shop"),
	} {
		got, _ := ask(t, addr, request)
		if diff := cmp.Diff(httpAnswer{200, "unknown", "", ""}, got); diff != "" {
			t.Errorf("%q: answer (-want +got):\n%s", request, diff)
		}
	}
}

// TestFields checks what the gate sees of a sub-request's headers.
func TestFields(t *testing.T) {
	header := http.Header{
		"X-Order": {"1", "2"}, "X-Original-Uri": {"/a"}, "X-Original-Url": {"/b"}, "Content-Length": {"0"}, "Accept": {"*/*"},
	}
	f := newFields(header, "X-Original-Uri", "X-Original-Method")
	got := make(map[string][]string)
	for cursor := 0; ; {
		name, value, next := f.Next(cursor)
		if next < 0 {
			break
		}
		got[name] = append(got[name], value)
		cursor = next
	}
	want := map[string][]string{"x-order": {"1", "2"}, "x-original-url": {"/b"}, "accept": {"*/*"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("headers (-want +got):\n" + diff)
	}
}

// TestHTTPObserve lets everything pass, with the verdict.
func TestHTTPObserve(t *testing.T) {
	policies := slices.Clone(newServer(t).current.Load().gate.Policies())
	for i := range policies {
		policies[i].Observe = true
	}
	addr := serveGate(t, policies)
	for request, verdict := range map[string]string{
		subrequest("GET", "/check/envoy/orders/43"): "absent", nginxAsks("/orders/43"): "absent", traefikAsks("/orders/4x"): "invalid",
	} {
		got, _ := ask(t, addr, request)
		if diff := cmp.Diff(httpAnswer{200, verdict, "", ""}, got); diff != "" {
			t.Errorf("%q: answer (-want +got):\n%s", request, diff)
		}
	}
}

// TestAnswersOfOddRules checks that a rule's name cannot lead elsewhere.
func TestAnswersOfOddRules(t *testing.T) {
	policies := slices.Clone(newServer(t).current.Load().gate.Policies())
	policies[0].Rule.Name = "a b/../c\r\n?d"
	g, err := gate.New(policies[:1], gatetest.Silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for path := range maps.Keys(newRuleReplies(g, nil).byPath) {
		if strings.ContainsAny(path, " ?\r\n") || strings.Count(path, "/") != 3 {
			t.Errorf("the answer is at %q", path)
		}
	}
}

// FuzzHTTPCheck feeds any original request: every one gets an answer, and the
// three ways to ask agree.
func FuzzHTTPCheck(f *testing.F) {
	handler := newServer(f).HTTPHandler()
	for _, target := range []string{"/orders/42", "/orders/43", "/orders/4x?a=b", "//orders/43", "/%zz", "*"} {
		f.Add("GET", target, "42")
	}
	f.Fuzz(func(t *testing.T, method, target, header string) {
		if method == "" || !strings.HasPrefix(target, "/") {
			return
		}
		send := func(path string, h http.Header) *httptest.ResponseRecorder {
			r := &http.Request{Method: method, Host: "shop", RequestURI: path, Header: h}
			r.Header["X-Order"] = []string{header}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r.WithContext(t.Context()))
			return w
		}
		envoy := send(pathEnvoy+target, http.Header{})
		traefik := send(pathForwardAuth, http.Header{
			"X-Forwarded-Uri": {target}, "X-Forwarded-Method": {method}, "X-Forwarded-Host": {"shop"},
		})
		nginx := send(pathNginx, http.Header{"X-Original-Uri": {target}, "X-Original-Method": {method}})
		if envoy.Code != traefik.Code || (envoy.Code == 200) != (nginx.Code == 200) || nginx.Code != 200 && nginx.Code != 403 {
			t.Errorf("%s %q: envoy %d, traefik %d, nginx %d", method, target, envoy.Code, traefik.Code, nginx.Code)
		}
		for _, w := range []*httptest.ResponseRecorder{traefik, nginx} {
			if got, want := w.Header().Get(gate.HeaderVerdict), envoy.Header().Get(gate.HeaderVerdict); got != want {
				t.Errorf("%s %q: verdict %q, want %q", method, target, got, want)
			}
		}
	})
}

var _ order.Header = fields(nil)

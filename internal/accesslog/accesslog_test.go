package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// read returns all requests of a log.
func read(t *testing.T, text string, format Format) (list []Entry, counts Counts, err error) {
	t.Helper()
	r, err := Open("access.log", strings.NewReader(text), format)
	if err != nil {
		return nil, Counts{}, err
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list, r.Counts(), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, *e)
	}
}

func at(zone int, nsec int) time.Time {
	return time.Date(2026, 11, 27, 10, 0, 1, nsec, time.FixedZone("", zone))
}

const ms = int(time.Millisecond)

func TestForms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, line string
		format     Format
		want       Entry
	}{
		{
			"envoy", `[2026-11-27T10:00:01.250Z] "GET /orders/42?a=%20 HTTP/1.1" 404 - 0 123 17 16 "10.1.2.3,10.0.0.1" "curl/8.1" "8f3b" "shop.example:8080" "10.0.0.9:80"`, Any,
			Entry{Format: Envoy, Start: at(0, 250*ms), Duration: 17 * time.Millisecond, Method: "GET", Target: "/orders/42?a=%20", Host: "shop.example:8080", Status: 404, Details: ViaUpstream, Client: "10.1.2.3 curl/8.1"},
		},
		{
			"envoy behind a prefix, of Envoy's own answer", `envoy-1  | [2026-11-27T10:00:01.250+0100] "POST /orders HTTP/2" 503 UF,URX 0 91 3 - "-" "-" "8f3b" "shop" "-"`, Any,
			Entry{Format: Envoy, Start: at(3600, 250*ms), Duration: 3 * time.Millisecond, Method: "POST", Target: "/orders", Host: "shop", Status: 503, Details: "UF,URX"},
		},
		{
			"envoy with a quote in the agent", `[2026-11-27T10:00:01.000Z] "GET /orders/42 HTTP/1.1" 200 - 0 1 5 4 "1.1.1.1" "a"b c" "8f3b" "shop" "10.0.0.9:80"`, Any,
			Entry{Format: Envoy, Start: at(0, 0), Duration: 5 * time.Millisecond, Method: "GET", Target: "/orders/42", Host: "shop", Status: 200, Details: ViaUpstream, Client: "1.1.1.1 a"},
		},
		{
			"istio", `[2026-11-27T10:00:01.000Z] "GET /orders/42 HTTP/1.1" 200 - via_upstream - "-" 0 135 4 4 "-" "curl/7" "d209" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.6:4 10.4:80 10.5:4 outbound_.8000_._.httpbin default`, Any,
			Entry{Format: Envoy, Start: at(0, 0), Duration: 4 * time.Millisecond, Method: "GET", Target: "/orders/42", Host: "httpbin:8000", Status: 200, Details: ViaUpstream},
		},
		{
			"nginx", `10.1.2.3 - - [27/Nov/2026:10:00:01 +0100] "GET /orders/42 HTTP/1.1" 200 12 "-" "curl" 0.250`, Any,
			Entry{Format: Nginx, Start: at(3600, 0).Add(-250 * time.Millisecond), Duration: 250 * time.Millisecond, Method: "GET", Target: "/orders/42", Status: 200, Details: ViaUpstream, Client: "10.1.2.3 curl"},
		},
		{
			"nginx with a name and an escaped target", `10.1.2.3 - bob [27/Nov/2026:10:00:01 +0100] "GET /orders/4\x22\xC3\xBC\x5C HTTP/1.1" 400 12 "-" "a \x22b" rt=1.000 uct="0.1"`, Any,
			Entry{Format: Nginx, Start: at(3600, 0).Add(-time.Second), Duration: time.Second, Method: "GET", Target: "/orders/4\"ü\\", Status: 400, Details: ViaUpstream, Client: `10.1.2.3 a \x22b`},
		},
		{
			"common", `10.1.2.3 - - [27/Nov/2026:10:00:01 -0500] "GET /orders/42 HTTP/1.1" 200 12`, Any,
			Entry{Format: Combined, Start: at(-5*3600, 0), Duration: -1, Method: "GET", Target: "/orders/42", Status: 200, Details: ViaUpstream, Client: "10.1.2.3"},
		},
		{
			"apache with a virtual host", `shop.example:443 10.1.2.3 - - [27/Nov/2026:10:00:01 +0000] "GET /orders/42 HTTP/1.1" 200 12 "-" "curl" 0.250`, Apache,
			Entry{Format: Apache, Start: at(0, 0), Duration: -1, Method: "GET", Target: "/orders/42", Host: "shop.example", Status: 200, Details: ViaUpstream, Client: "10.1.2.3 curl"},
		},
		{
			"an absolute target", `10.1.2.3 - - [27/Nov/2026:10:00:01 +0000] "GET http://shop.example?id=42 HTTP/1.1" 200 12 "-" "curl"`, Any,
			Entry{Format: Combined, Start: at(0, 0), Duration: -1, Method: "GET", Target: "/?id=42", Host: "shop.example", Status: 200, Details: ViaUpstream, Client: "10.1.2.3 curl"},
		},
		{
			"envoy's JSON", `{"start_time":"2026-11-27T10:00:01.250Z","method":"GET","path":"/new","x-envoy-original-path":"/orders/42","response_code":404,"response_flags":"NR","duration":"17","x_forwarded_for":null,":authority":"shop","upstream":{"method":"PUT"},"user_agent":"curl"}`, Any,
			Entry{Format: JSON, Start: at(0, 250*ms), Duration: 17 * time.Millisecond, Method: "GET", Target: "/orders/42", Host: "shop", Status: 404, Details: "NR"},
		},
		{
			"the example's JSON", `{"client":"10.1.2.3","details":"ordergate_absent","flags":"UAEX","method":"GET","ms":2,"path":"/orders/42","request":"0aa02bb0-71b3","status":404,"time":"2026-11-27T10:00:01.000Z"}`, Any,
			Entry{Format: JSON, Start: at(0, 0), Duration: 2 * time.Millisecond, Method: "GET", Target: "/orders/42", Status: 404, Details: "ordergate_absent", Client: "10.1.2.3 "},
		},
		{
			"nginx's JSON", `{"time_iso8601":"2026-11-27T10:00:01+00:00","request":"GET /orders/42 HTTP/1.1","status":"200","request_time":"0.500","remote_addr":"10.1.2.3","http_user_agent":"curl"}`, Any,
			Entry{Format: JSON, Start: at(0, 0).Add(-500 * time.Millisecond), Duration: 500 * time.Millisecond, Method: "GET", Target: "/orders/42", Status: 200, Details: ViaUpstream, Client: "10.1.2.3 curl"},
		},
		{
			"Docker's file", `{"log":"[2026-11-27T10:00:01.000Z] \"GET /orders/42 HTTP/1.1\" 200 - 0 1 5 4\n","stream":"stdout","time":"2026-11-27T10:00:02Z"}`, Any,
			Entry{Format: Envoy, Start: at(0, 0), Duration: 5 * time.Millisecond, Method: "GET", Target: "/orders/42", Status: 200, Details: ViaUpstream},
		},
		{
			"caddy", `{"level":"info","ts":1795773601.25,"request":{"remote_ip":"10.1.2.3","method":"GET","host":"shop","uri":"/orders/42","headers":{"Host":["x"]}},"duration":0.0025,"status":200}`, Any,
			Entry{Format: JSON, Start: at(0, 250*ms), Duration: 2500 * time.Microsecond, Method: "GET", Target: "/orders/42", Host: "shop", Status: 200, Details: ViaUpstream, Client: "10.1.2.3 "},
		},
		{
			"traefik", `{"StartUTC":"2026-11-27T10:00:01Z","RequestMethod":"GET","RequestPath":"/orders/42","RequestHost":"shop","DownstreamStatus":200,"Duration":2500000,"ClientHost":"10.1.2.3"}`, Any,
			Entry{Format: JSON, Start: at(0, 0), Duration: 2500 * time.Microsecond, Method: "GET", Target: "/orders/42", Host: "shop", Status: 200, Details: ViaUpstream, Client: "10.1.2.3 "},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			list, counts, err := read(t, tt.line+"\n", tt.format)
			if err != nil || len(list) != 1 {
				t.Fatalf("%v: %+v, %+v", err, list, counts)
			}
			tt.want.Line = 1
			if diff := cmp.Diff(tt.want, list[0], cmpopts.IgnoreUnexported(Entry{}), cmp.Comparer(func(a, b time.Time) bool {
				_, x := a.Zone()
				_, y := b.Zone()
				return a.Equal(b) && x == y
			})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const har = `{"log":{"version":"1.2","creator":{"name":"x"},"entries":[
{"startedDateTime":"2026-11-27T10:00:01.000+01:00","time":12.5,"request":{"method":"POST","url":"https://shop.example/orders?x=1#top","headers":[{"name":":path","value":"/"},{"name":"Content-Type","value":"application/json"}],"bodySize":14,"postData":{"mimeType":"application/json","text":"{\"orderId\":42}"}},"response":{"status":201}},
{"startedDateTime":"2026-11-27T10:00:02.000+01:00","time":-1,"request":{"method":"GET","url":"data:,x","headers":[]},"response":{"status":0}},
{"startedDateTime":"2026-11-27T10:00:02.000+01:00","time":-1,"request":{"method":"GET","url":"https://shop.example","headers":[{"name":"Cookie","value":"a=b"}]},"response":{"status":200}}]}}`

func TestHAR(t *testing.T) {
	t.Parallel()
	list, counts, err := read(t, har, Any)
	if err != nil || len(list) != 2 || counts.Odd != 1 || counts.FirstOdd != 2 || counts.Cut != "" {
		t.Fatalf("%v: %+v, %+v", err, list, counts)
	}
	e := list[0]
	if e.Target != "/orders?x=1" || e.Host != "shop.example" || string(e.Body) != `{"orderId":42}` || e.Duration != 12500*time.Microsecond || e.Shows != (Parts{Header: true, Body: true}) || len(e.Header) != 1 {
		t.Errorf("%+v", e)
	}
	if e := list[1]; e.Target != "/" || e.Line != 3 || e.Duration != -1 || e.Shows != (Parts{Header: true, Cookies: true, Body: true}) {
		t.Errorf("%+v", e)
	}
	list, counts, err = read(t, har[:len(har)-120], Any)
	if err != nil || len(list) != 1 || !strings.Contains(counts.Cut, "ends early, in entry 3") {
		t.Errorf("%v: %+v, %+v", err, list, counts)
	}
}

const good = `10.1.2.3 - - [27/Nov/2026:10:00:01 +0000] "GET /orders/42 HTTP/1.1" 200 12 "-" "curl"` + "\n"

// TestBadLines has lines that are no requests between others that are.
func TestBadLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20) + "\n"
	text := "\xef\xbb\xbf\n" + good + `10.1.2.3 - - [27/Nov/2026:10:00:01 +0000] "\x16\x03\x01" 400 12 "-" "-"` + "\r\n" + long + "[info] starting\n" + long + good +
		`10.1.2.3 - - [27/Nov/2026:10:00:01 +0000] "OPTIONS * HTTP/1.1" 200 12 "-" "-"` + "\n" + `{"method":"GET","path":"/x"` + "\n" + good[:70]
	list, counts, err := read(t, text, Any)
	if err != nil || len(list) != 2 || list[1].Line != 7 {
		t.Fatalf("%v: %+v", err, list)
	}
	want := Counts{Lines: 10, Long: 2, FirstLong: 4, Odd: 5, FirstOdd: 3, OddText: `10.1.2.3 - - [27/Nov/2026:10:00:01 +0000] "\x16\x03\x01" 400`}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Error(diff)
	}
}

func TestGzip(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 5000 {
		_, _ = w.Write([]byte(good))
	}
	_ = w.Close()
	list, counts, err := read(t, packed.String(), Any)
	if err != nil || len(list) != 5000 || counts.Cut != "" {
		t.Errorf("%v: %d requests, %+v", err, len(list), counts)
	}
	list, counts, err = read(t, packed.String()[:packed.Len()-9], Any)
	if err != nil || len(list) == 0 || !strings.Contains(counts.Cut, "it ends early, in line ") {
		t.Errorf("%v: %d requests, %+v", err, len(list), counts)
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "access.log is empty"},
		{"another form", "time=2026 path=/x\nmore\n", `access.log has no request in its first 2 lines: want Envoy's default access log or a JSON object a line, a combined log of nginx or Apache, or a HAR file; line 1 begins with "time=2026 path=/x"`},
		{"endless", strings.Repeat("x\n", 100_000), "in its first 1000 lines"},
		{"one line", strings.Repeat("x", 1<<20), "access.log has no request: line 1 has more than 262144 bytes"},
		{"UTF-16", "\xff\xfe[\x00", "access.log is in UTF-16: convert it to UTF-8"},
		{"zstd", "\x28\xb5\x2f\xfd\x00", "access.log is compressed by zstd: only gzip is read"},
		{"half a gzip", "\x1f\x8b\x08", "access.log: reading gzip: unexpected EOF"},
		{"a HAR file without entries", `{"log":{"entries":[]}}`, "access.log has no request: a HAR file has log.entries"},
		{"a HAR file of something else", `{"log":[]}`, `access.log: reading HAR: it has no object with "entries": unexpected EOF`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := read(t, tt.text, Any); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
	if _, _, err := read(t, good, Envoy); err == nil || !strings.Contains(err.Error(), "want Envoy's default access log; line 1 begins with") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good, "")
	f.Add(`[2026-11-27T10:00:01.250Z] "GET /orders/42?a=%20 HTTP/1.1" 404 - 0 123 17 16 "-" "-" "-" "-" "-"`, "envoy")
	f.Add(`{"time":"2026-11-27T10:00:01Z","method":"GET","path":"/"}`, "json")
	f.Add(har, "har")
	f.Fuzz(func(t *testing.T, text, format string) {
		r, err := Open("log", strings.NewReader(text), Format(format))
		for err == nil {
			var e *Entry
			if e, err = r.Next(); err == nil && (e.Target == "" || e.Target[0] != '/' || e.Method == "") {
				t.Errorf("%+v", e)
			}
		}
	})
}

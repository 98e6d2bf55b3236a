package testbed

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// EnvoyExample returns examples/envoy/envoy.yaml with the addresses of running
// servers in place of its own: those of ordergate's two gRPC listeners, as
// "127.0.0.1:port" or "unix:/path", and of the backend, as "127.0.0.1:port". Its own
// listeners go to free ports; the one for clients is called "orders". Its limits are
// wide, since a test has all its clients at one address, and no filter makes requests
// complete before ordergate has them. [Bed.EnvoyAsShipped] keeps both.
func (b *Bed) EnvoyExample(authz, proc, backend string) (string, error) {
	text, err := b.EnvoyAsShipped(authz, proc, backend)
	if err != nil {
		return "", err
	}
	return widened("envoy.yaml", text)
}

// EnvoyAsShipped is [Bed.EnvoyExample] with the limits of the example.
func (b *Bed) EnvoyAsShipped(authz, proc, backend string) (string, error) {
	replace := maps.Clone(ports)
	replace["port_value: 8080 "] = "port_value: " + port(backend) + " "
	replace["{ pipe: { path: /run/ordergate/authz.sock } }"] = envoyAddress(authz)
	replace["{ pipe: { path: /run/ordergate/proc.sock } }"] = envoyAddress(proc)
	text, err := b.example("envoy.yaml", replace)
	return ForThisEnvoy(text), err
}

// ForThisEnvoy replaces in examples/envoy/envoy.yaml what the Envoy of the tests does not know. Envoy
// 1.37 has no input localReplies of the filter ordergate.answers; for it, ordergate envoy
// --envoy-version 1.37 prints ownReplies in its place.
func ForThisEnvoy(text string) string {
	if EnvoyIs("1.37") {
		text = strings.Replace(text, localReplies, ownReplies, 1)
	}
	return text
}

// ThroughBoth changes examples/envoy/envoy.yaml so that what ext_proc sees passes ext_authz before, as
// ordergate envoy prints it for other rules.
func ThroughBoth(text string) (string, error) {
	for _, part := range oneFilter {
		if n := len(part.FindAllString(text, -1)); n != 1 {
			return "", fmt.Errorf("the example has %v %d times", part, n)
		}
		text = part.ReplaceAllString(text, "$1")
	}
	return text, nil
}

// oneFilter is what has each request go through one filter only.
var oneFilter = []*regexp.Regexp{
	regexp.MustCompile(`(          - name: envoy\.filters\.http\.ext_authz\n)            disabled: true\n`),
	regexp.MustCompile(`                initial_metadata: .*\n`),
	regexp.MustCompile(`(?s)          - name: ordergate\.guard\n.*?\n\n`),
	regexp.MustCompile(`(?s)                  envoy\.filters\.http\.ext_authz:   # on\n.*?RBACPerRoute\n`),
}

const (
	localReplies = "typed_config: { \"@type\": type.googleapis.com/envoy.type.matcher.v3.HttpResponseLocalReplyMatchInput }\n                            value_match: { exact: \"true\" }"
	ownReplies   = "typed_config: { \"@type\": type.googleapis.com/envoy.type.matcher.v3.HttpResponseHeaderMatchInput, header_name: x-ordergate-verdict }\n                            value_match: { safe_regex: { google_re2: {}, regex: .+ } }"
)

// GateExample returns examples/envoy/ordergate.yaml with free ports for its
// listeners, a running Redis ("127.0.0.1:port"), and the file of IDs that the example
// has for trying it out in place of its table.
func (b *Bed) GateExample(redis, ids string) (string, error) {
	text, err := b.example("ordergate.yaml", map[string]string{
		"unix:/run/ordergate/authz.sock ": "127.0.0.1:0 ",
		"unix:/run/ordergate/proc.sock ":  "127.0.0.1:0 ",
		"127.0.0.1:9194":                  "127.0.0.1:0",
		"127.0.0.1:6379":                  redis,
		"sources: [orders-db]":            "sources: [seed]",
	})
	if err != nil {
		return "", err
	}
	before, rest, found := strings.Cut(text, "\nsources:\n")
	_, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		return "", fmt.Errorf("ordergate.yaml has no sources, followed by an empty line")
	}
	return before + "\nsources:\n  seed: {kind: csv, path: " + ids + "}\n\n" + after, nil
}

// Unhurried has Envoy wait for the verdict on a request for longer than any machine is busy:
// the example goes on without one.
func Unhurried(envoy string) (string, error) {
	return replaceAll("envoy.yaml", envoy, map[string]string{"                timeout: 0.5s": "                timeout: 50s"})
}

// WithFreshness sets how long the filter of an example is certain: freshness is "none", or
// such as "{window: 1s}".
func WithFreshness(gate, freshness string) (string, error) {
	const filter = "\n  orders:\n"
	if strings.Count(gate, filter) != 1 {
		return "", errors.New("setting the freshness: the example's filter is not called orders any more")
	}
	return strings.Replace(gate, filter, filter+"    freshness: "+freshness+"\n", 1), nil
}

// GateAsShipped returns examples/envoy/ordergate.yaml with its sockets in the directory
// run, a free port for its admin listener, a running Redis, and a file that has the data
// source name of the table of orders.
func (b *Bed) GateAsShipped(redis, run, dsn string) (string, error) {
	return b.example("ordergate.yaml", map[string]string{
		"/run/ordergate/":     run + "/",
		"127.0.0.1:9194":      "127.0.0.1:0",
		"127.0.0.1:6379":      redis,
		"dsn_env: ORDERS_DSN": "dsn_file: " + dsn,
	})
}

var (
	// ports are those of both examples of Envoy's configuration.
	ports = map[string]string{
		"port_value: 10000 ": "port_value: 0 ",
		"port_value: 9901 ":  "port_value: 0 ",
	}
	// wide are the limits that a test's many clients at one address would meet.
	wide = map[string]string{
		// A body as large as ordergate looks into is to reach it.
		"per_connection_buffer_limit_bytes: 262144":                     "per_connection_buffer_limit_bytes: 1048576",
		"initial_stream_window_size: 262144 ":                           "initial_stream_window_size: 16777216 ",
		"initial_connection_window_size: 1048576 ":                      "initial_connection_window_size: 16777216 ",
		"max_connections: 12,":                                          "max_connections: 10000,",
		"max_connections: 20,":                                          "max_connections: 10000,",
		"max_pending_requests: 1000 }":                                  "max_pending_requests: 10000, max_requests: 10000 }",
		"{ max_tokens: 1000, tokens_per_fill: 100, fill_interval: 1s }": "{ max_tokens: 1000000, tokens_per_fill: 1000000, fill_interval: 1s }",
	}
)

// widened takes the limits of an example away, and the filter that has ordergate see
// complete requests only: without it ordergate has to see to that itself.
func widened(name, text string) (string, error) {
	before, rest, found := strings.Cut(text, "          - name: envoy.filters.http.buffer\n")
	_, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		return "", fmt.Errorf("%s has no filter envoy.filters.http.buffer, followed by an empty line", name)
	}
	return replaceAll(name, before+after, wide)
}

// example reads a file of examples/envoy and replaces what must occur in it, so
// that an example that changed is noticed.
func (b *Bed) example(name string, replace map[string]string) (string, error) {
	path := filepath.Join(b.root, "examples", "envoy", name)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading an example: %w", err)
	}
	return replaceAll(path, string(data), replace)
}

// replaceAll replaces what must occur in the text of a file.
func replaceAll(path, text string, replace map[string]string) (string, error) {
	for from, to := range replace {
		if !strings.Contains(text, from) {
			return "", fmt.Errorf("%s has no %q to replace", path, from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return text, nil
}

// envoyAddress writes "host:port" or "unix:/path" as Envoy does.
func envoyAddress(addr string) string {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return "{ pipe: { path: " + path + " } }"
	}
	return "{ socket_address: { address: 127.0.0.1, port_value: " + port(addr) + " } }"
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

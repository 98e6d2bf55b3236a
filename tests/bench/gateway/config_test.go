package main

import (
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
)

// TestPlain leaves the router alone of the example.
func TestPlain(t *testing.T) {
	bed, err := testbed.New(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	example, err := bed.EnvoyExample("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(string) (string, error)
		gates  bool
	}{{"plain", plain, false}, {"quiet", quiet, true}} {
		config, err := tt.change(example)
		if err != nil {
			t.Fatal(err)
		}
		for part, want := range map[string]bool{
			"filters.http.router":    true,
			"access_log":             false,
			"filters.http.ext_proc":  tt.gates,
			"filters.http.ext_authz": tt.gates,
			"ExtProcPerRoute":        tt.gates,
		} {
			if strings.Contains(config, part) != want {
				t.Errorf("%s: %q is there: %t, want %t", tt.name, part, !want, want)
			}
		}
	}
}

func TestPlainErrors(t *testing.T) {
	const listener = "static_resources: {listeners: [{filter_chains: [{filters: [{typed_config: %}]}]}]}"
	for _, tt := range []struct{ name, config, err string }{
		{"no YAML", "[", "reading envoy's configuration: "},
		{"no listener", "static_resources: {listeners: []}", "there is nothing at [static_resources listeners 0]"},
		{"no manager", strings.Replace(listener, "%", "3", 1), "the connection manager is a int"},
		{"no filters", strings.Replace(listener, "%", "{}", 1), "it has the HTTP filters"},
		{"no routes", strings.Replace(listener, "%", "{http_filters: [{}, {}]}", 1), "there is nothing at [route_config]"},
	} {
		_, err := plain(tt.config)
		checkError(t, tt.name, err, tt.err)
	}
}

func TestNginxConfig(t *testing.T) {
	_, err := nginxConfig("plain.conf", map[string]string{"WRONG": "/dev/null"})
	checkError(t, "a name is left", err, "plain.conf has a @BACKEND@ that nobody replaces")
	_, err = nginxConfig("other.conf", nil)
	checkError(t, "no such file", err, "configuring nginx: ")
}

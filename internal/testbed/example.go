package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// EnvoyExample returns examples/envoy/envoy.yaml with the ports of running
// servers in place of its own: those of ordergate's two gRPC listeners and of
// the backend, each as "127.0.0.1:port". Its own listeners go to free ports; the
// one for clients is called "orders".
func (b *Bed) EnvoyExample(authz, proc, backend string) (string, error) {
	return b.example("envoy.yaml", map[string]string{
		"port_value: 10000 ": "port_value: 0 ",
		"port_value: 9901 ":  "port_value: 0 ",
		"port_value: 9191 ":  "port_value: " + port(authz) + " ",
		"port_value: 9192 ":  "port_value: " + port(proc) + " ",
		"port_value: 8080 ":  "port_value: " + port(backend) + " ",
	})
}

// GateExample returns examples/envoy/ordergate.yaml with free ports for its
// listeners, a running Redis ("127.0.0.1:port"), and the path of a file of IDs.
func (b *Bed) GateExample(redis, ids string) (string, error) {
	return b.example("ordergate.yaml", map[string]string{
		"127.0.0.1:9191": "127.0.0.1:0",
		"127.0.0.1:9192": "127.0.0.1:0",
		"127.0.0.1:9194": "127.0.0.1:0",
		"127.0.0.1:6379": redis,
		"orders.csv":     ids,
	})
}

// example reads a file of examples/envoy and replaces what must occur in it, so
// that an example that changed is noticed.
func (b *Bed) example(name string, replace map[string]string) (string, error) {
	path := filepath.Join(b.root, "examples", "envoy", name)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading an example: %w", err)
	}
	text := string(data)
	for from, to := range replace {
		if !strings.Contains(text, from) {
			return "", fmt.Errorf("%s has no %q to replace", path, from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return text, nil
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

package testbed

import (
	"context"
	"fmt"
	"path/filepath"
)

// moduleFile is how Envoy finds the module called "ordergate".
const moduleFile = "libordergate.so"

// Module compiles ordergate's Envoy module, and returns the path of the library below
// .cache/bin. It is as quick, and as safe, as [Bed.Build]. There is none with the race
// detector: that finds no room for itself in a process that has begun.
func (b *Bed) Module(ctx context.Context) (string, error) {
	library, err := b.build(ctx, "./cmd/envoymodule", filepath.Join("module", moduleFile), []string{"-buildmode=c-shared"})
	if err != nil {
		return "", fmt.Errorf("building the module: %w", err)
	}
	return library, nil
}

// ModuleExample returns examples/envoy/envoy-module.yaml with the port of a running
// backend ("127.0.0.1:port"), and the path of ordergate's configuration. Its own
// listeners go to free ports; the one for clients is called "orders".
func (b *Bed) ModuleExample(config, backend string) (string, error) {
	return b.example("envoy-module.yaml", map[string]string{
		"port_value: 10000 ":    "port_value: 0 ",
		"port_value: 9901 ":     "port_value: 0 ",
		"port_value: 8080 ":     "port_value: " + port(backend) + " ",
		"value: ordergate.yaml": "value: " + config,
	})
}

// EnvoyWithModule starts an Envoy with a library made by [Bed.Module]. The function gets
// the path of a file with ordergate's configuration, and returns Envoy's, as
// [Bed.ModuleExample] does. The gate is the same process as Envoy; it is not waited for
// until it is ready.
func (b *Bed) EnvoyWithModule(ctx context.Context, library, gate string, envoy func(config string) (string, error), args ...string) (*Envoy, *Gate, error) {
	file, err := b.tempFile("ordergate-*.yaml", gate)
	if err != nil {
		return nil, nil, fmt.Errorf("starting envoy with the module: %w", err)
	}
	config, err := envoy(file)
	if err != nil {
		return nil, nil, err
	}
	e, err := b.envoy(ctx, config, []string{"ENVOY_DYNAMIC_MODULES_SEARCH_PATH=" + filepath.Dir(library)}, args)
	if err != nil {
		return nil, nil, err
	}
	return e, &Gate{Process: e.Process, config: file}, nil
}

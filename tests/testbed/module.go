package testbed

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// moduleFile is how Envoy finds the module called "ordergate".
const moduleFile = "libordergate.so"

// Module compiles ordergate's Envoy module, and returns the path of the library below
// .cache/bin. It is as quick, and as safe, as [Bed.Build]. There is none with the race
// detector: that finds no room for itself in a process that has begun. With ENVOY_VERSION=asan
// it has AddressSanitizer (make test-asan).
func (b *Bed) Module(ctx context.Context) (string, error) {
	dir, flags := "module", []string{"-buildmode=c-shared", stripped}
	if os.Getenv("ENVOY_VERSION") == "asan" {
		dir, flags = "module-asan", []string{"-buildmode=c-shared", "-asan"}
	}
	library, err := b.build(ctx, "./cmd/envoymodule", filepath.Join(dir, moduleFile), flags)
	if err != nil {
		return "", fmt.Errorf("building the module: %w", err)
	}
	return library, nil
}

// ModuleExample returns examples/envoy/envoy-module.yaml with the port of a running
// backend ("127.0.0.1:port"), and the path of ordergate's configuration. Its own
// listeners go to free ports; the one for clients is called "orders". Its limits are
// wide, as those of [Bed.EnvoyExample].
func (b *Bed) ModuleExample(config, backend string) (string, error) {
	text, err := b.ModuleAsShipped(config, backend)
	if err != nil {
		return "", err
	}
	return widened("envoy-module.yaml", text)
}

// ModuleAsShipped is [Bed.ModuleExample] with the limits of the example.
func (b *Bed) ModuleAsShipped(config, backend string) (string, error) {
	replace := maps.Clone(ports)
	replace["port_value: 8080 "] = "port_value: " + port(backend) + " "
	replace["value: ordergate.yaml"] = "value: " + config
	return b.example("envoy-module.yaml", replace)
}

// EnvoyWithModule starts an Envoy with a library made by [Bed.Module]. The function gets
// the path of a file with ordergate's configuration, and returns Envoy's, as
// [Bed.ModuleExample] does. The gate is the same process as Envoy; it is not waited for
// until it is ready. Of the extras, variables "KEY=value" are added to the environment, and the rest to
// the command line.
func (b *Bed) EnvoyWithModule(ctx context.Context, library, gate string, envoy func(config string) (string, error), extras ...string) (*Envoy, *Gate, error) {
	file, err := b.tempFile("ordergate-*.yaml", gate)
	if err != nil {
		return nil, nil, fmt.Errorf("starting envoy with the module: %w", err)
	}
	config, err := envoy(file)
	if err != nil {
		return nil, nil, err
	}
	env, args := []string{"ENVOY_DYNAMIC_MODULES_SEARCH_PATH=" + filepath.Dir(library)}, []string(nil)
	for _, extra := range extras {
		if strings.Contains(extra, "=") && !strings.HasPrefix(extra, "-") {
			env = append(env, extra)
		} else {
			args = append(args, extra)
		}
	}
	e, err := b.envoy(ctx, config, env, args)
	if err != nil {
		return nil, nil, err
	}
	return e, &Gate{Process: e.Process, config: file}, nil
}

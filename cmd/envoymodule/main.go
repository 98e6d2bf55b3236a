// Command envoymodule is ordergate inside Envoy: a dynamic module, built with
// -buildmode=c-shared as libordergate.so, whose HTTP filter "ordergate" decides what the
// sidecar decides, without a hop. docs/envoy-module.md tells when to choose which.
//
// Package main only wires: the filter is internal/envoymodule, and what it asks is
// internal/engine.
package main

import (
	"errors"
	"os"

	sdk "github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go"
	_ "github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go/abi" // what Envoy calls
	"github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go/shared"

	"github.com/ordergate/ordergate/internal/envoymodule"
)

// version is set by the linker (-X main.version=...).
var version = ""

func main() {} // Envoy never calls it

func init() {
	sdk.RegisterHttpFilterConfigFactories(map[string]shared.HttpFilterConfigFactory{"ordergate": &factory{getenv: os.Getenv}})
}

// factory makes what Envoy needs for each place where the filter stands in its
// configuration. Envoy calls it from its main thread.
type factory struct {
	shared.EmptyHttpFilterConfigFactory
	getenv func(string) string
	shared runtimes
}

// Create implements shared.HttpFilterConfigFactory. The configuration is that of the
// filter, see [parseSettings].
func (f *factory) Create(envoy shared.HttpFilterConfigHandle, text []byte) (shared.HttpFilterFactory, error) {
	log := envoymodule.NewLogger(envoy)
	s, err := parseSettings(text)
	if err != nil {
		return nil, err
	}
	r, err := f.shared.get(s.Config, f.getenv, log)
	if err != nil {
		return nil, err
	}
	return &filter{f: f, r: r, face: envoymodule.NewFace(r.engine.Gate(), envoymodule.Options{Logger: log, FailureModeAllow: s.FailureModeAllow})}, nil
}

// CreatePerRoute implements shared.HttpFilterConfigFactory.
func (f *factory) CreatePerRoute([]byte) (any, error) {
	return nil, errors.New("ordergate has no settings of a route; to leave it out use FilterConfig{disabled: true}")
}

// filter is one place in Envoy's configuration.
type filter struct {
	f    *factory
	r    *runtime
	face *envoymodule.Face
}

// Create implements shared.HttpFilterFactory.
func (f *filter) Create(envoy shared.HttpFilterHandle) shared.HttpFilter { return f.face.Create(envoy) }

// OnDestroy implements shared.HttpFilterFactory: all streams of this place are over.
// With the last place everything ends, since it may be Envoy that does.
func (f *filter) OnDestroy() {
	f.face.Close(cleanupTime)
	f.f.shared.release(f.r)
}

// Command envoymodule is ordergate inside Envoy: a dynamic module, built with
// -buildmode=c-shared as libordergate.so. Its HTTP filter "ordergate" makes the decisions
// of the sidecar without a network hop. docs/envoy-module.md compares the two.
//
// Package main only connects packages: the filter is internal/envoymodule, and the engine
// behind it is internal/engine.
package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/ordergate/ordergate/internal/bundle"
	"github.com/ordergate/ordergate/internal/envoymodule"
	"github.com/ordergate/ordergate/internal/envoymodule/abi"
)

// version is set by the linker (-X main.version=...).
var version = ""

func main() {} // Envoy never calls it

func init() {
	shared := runtimes{late: abi.Mute}
	abi.Register("ordergate", func(text []byte) (abi.FilterConfig, error) { return open(&shared, os.Getenv, text) })
}

// open creates what Envoy needs for each use of the filter in its configuration. The text
// is the filter's configuration, see [parseSettings]. Envoy calls it from its main thread.
func open(shared *runtimes, getenv func(string) string, text []byte) (abi.FilterConfig, error) {
	log := envoymodule.NewLogger(kept{abi.Log{}, &shared.recent})
	s, err := parseSettings(text)
	if err != nil {
		return abi.FilterConfig{}, err
	}
	r, err := shared.get(s.Config, getenv, log)
	if err != nil {
		return abi.FilterConfig{}, err
	}
	adapter := envoymodule.NewAdapter(r.engine.Gate(), envoymodule.Options{
		Logger: log, AnswerDelay: r.answerDelay, FailureModeAllow: s.FailureModeAllow, Native: abi.Native,
		Marks: r.engine.Marks(),
	})
	unfollow := r.engine.WatchGate(adapter.Use)
	return abi.FilterConfig{Adapter: adapter, Close: func() {
		unfollow()
		shared.release(r, adapter.Close)
	}}, nil
}

// kept is Envoy's log, whose last lines a report has.
type kept struct {
	envoymodule.Output
	recent *bundle.Log
}

func (k kept) Log(l slog.Level, line string) {
	fmt.Fprintf(k.recent, "time=%s level=%s %s\n", time.Now().Format(time.RFC3339Nano), l, line)
	k.Output.Log(l, line)
}

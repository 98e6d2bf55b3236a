// Gate stands in for ordergate in the tests of package testbed: it logs its
// listeners in the same words, serves /readyz and /config, and its
// configuration is a list of the ways in which it shall misbehave.
package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) < 3 || args[0] != "serve" || args[1] != "--config" {
		fmt.Fprintf(os.Stderr, "gate: arguments %q\n", args)
		return 2
	}
	file := args[2]
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	config := string(text)
	if strings.Contains(config, "refuse") {
		fmt.Fprintln(os.Stderr, "gate: refused: line 1")
		return 2
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if strings.Contains(config, "unready") {
			http.Error(w, "redis is away", http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/config", func(w http.ResponseWriter, _ *http.Request) {
		text, err := os.ReadFile(file)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(w, "%s %s", os.Getenv("GATE_GREETING"), text)
	})
	go func() { _ = http.Serve(l, nil) }()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	log.Info("listening", "name", "authz", "addr", "unix:/run/a=b.sock") // slog quotes this one
	log.Info("listening", "name", "admin", "addr", l.Addr().String())

	for range signals {
		if strings.Contains(config, "deaf") {
			continue
		}
		if strings.Contains(config, "racy") {
			return 66
		}
		return 0
	}
	return 1
}

// Command ordergate is a sidecar of Envoy that guards order services. It rejects lookups of
// orders that do not exist, learns new orders from the backend's answers, and brackets
// settlements with a lock. It is the program of cmd/sidecar, by the name that go install gives it.
package main

import "github.com/ordergate/ordergate/cmd/internal/command"

// version is set by the linker (-X main.version=...).
var version = ""

func main() { command.Main(version) }

package tests

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestDemo runs the demo as "make demo ONESHOT=1" does. It exits 0 only if what it
// promises came true: no made-up order reached a service, every new order was
// found, one order was paid once, and repeats had the first answer. It does not run beside other tests: it is a
// load test, and would take their time.
func TestDemo(t *testing.T) {
	bed := bedtest.New(t)
	demo := bed.Build("./examples/demo", false)
	_, err := exec.LookPath("php")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("php is missing: run python3 tools/fetch.py php")
	}
	cmd := exec.CommandContext(t.Context(), demo)
	cmd.Dir = bed.Root()
	cmd.Env = append(os.Environ(), "ONESHOT=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"Made-up IDs that reached a service: ", "New orders found by the very next lookup: 100 of 100.",
		"Payments for one order: PHP 1, Java 1.",
		"Repeats with the first answer: 200 of 200.", "Orders by 100 creates, each sent twice: 100.",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

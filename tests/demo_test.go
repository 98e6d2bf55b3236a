package tests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

var pageAddress = regexp.MustCompile(`http://[^ ]+`)

// TestDemo runs the demo as "make demo ONESHOT=1" does. It exits 0 only if what it
// promises came true: no made-up order reached a service, every new order was
// found, one order was paid once, and repeats had the first answer. Meanwhile the page shows it. It does not run beside other tests: it is a
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
	var out bytes.Buffer
	cmd.Stderr = &out
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	address, _ := lines.ReadString('\n')
	refused := make(chan bool, 1) // whether the page has shown it
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				refused <- false
				return
			case <-time.After(50 * time.Millisecond):
			}
			if resp, err := client.Get(pageAddress.FindString(address)); err == nil {
				page, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if bytes.Contains(page, []byte("no such order")) {
					refused <- true
					return
				}
			}
		}
	}()
	rest, err := io.ReadAll(lines)
	err = errors.Join(err, cmd.Wait())
	close(ended)
	out.Write(rest)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !<-refused {
		t.Errorf("the page at %q has shown nothing", address)
	}
	for _, want := range []string{
		"Made-up IDs that reached a service: ", "New orders found by the very next lookup: 100 of 100.",
		"Payments for one order: PHP 1, Java 1.",
		"Repeats with the first answer: 200 of 200.", "Orders by 100 creates, each sent twice: 100.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

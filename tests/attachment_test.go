package tests

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// The attachments of ordergate to Envoy.
const (
	asSidecar = "sidecar" // by ext_authz and ext_proc
	asModule  = "module"  // inside Envoy
)

// attachment is the one that the stacks of this run have. The tests that have a stack
// are the same for both; the others know no Envoy, and are run with the sidecar only.
var attachment = flag.String("attachment", asSidecar, "how ordergate is attached to Envoy: sidecar or module")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := chooseTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

// besideOnly are tests of what lies behind the gate: sources, filters, topologies of Redis and the
// commands. They have a stack, and nothing in them depends on the attachment.
var besideOnly = []string{
	"TestAddedByHand", "TestAdminSlow", "TestAlertMetrics", "TestCallsOfAnIdleOrdergate", "TestFailover", "TestFiltersBroken", "TestFiltersGrow",
	"TestFloodAtTheStart", "TestForcedRelease", "TestForeignKeys", "TestGrowthHasAnEnd", "TestHeldKey", "TestLatchByHand",
	"TestLongerWindowElsewhere", "TestModel", "TestNginxThatCaches", "TestOutageIsLoggedOnce", "TestPage", "TestRedisEvicts", "TestRefusedUser", "TestWrongColumns",
}

// chooseTests leaves those tests that have a stack, and are not besideOnly, unless others were
// asked for.
func chooseTests() error {
	if *attachment != asSidecar && *attachment != asModule {
		return fmt.Errorf("-attachment=%s: must be %s or %s", *attachment, asSidecar, asModule)
	}
	run := flag.Lookup("test.run")
	if *attachment == asSidecar || run.Value.String() != "" {
		return nil
	}
	names, err := testsWithStack()
	if err != nil {
		return err
	}
	return run.Value.Set("^(" + strings.Join(names, "|") + ")$")
}

// testsWithStack returns the names of the tests in this directory that make a stack,
// themselves or by what they call.
func testsWithStack() ([]string, error) {
	calls := make(map[string][]string) // what each function mentions
	files, err := os.ReadDir(".")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					calls[f.Name.Name] = append(calls[f.Name.Name], id.Name)
				}
				return true
			})
		}
	}
	reaches := map[string]bool{"newStack": true, "newChaosSite": true}
	for grown := true; grown; {
		grown = false
		for name, mentions := range calls {
			if !reaches[name] && slices.ContainsFunc(mentions, func(m string) bool { return reaches[m] }) {
				reaches[name], grown = true, true
			}
		}
	}
	var names []string
	for name := range reaches {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			names = append(names, name)
		}
	}
	for _, name := range besideOnly {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s is no test with a stack", name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(besideOnly, name) })
	slices.Sort(names)
	return names, nil
}

// needsSidecar skips a test of what only a sidecar has, for the reason given.
func needsSidecar(t testing.TB, why string) {
	t.Helper()
	if *attachment != asSidecar {
		t.Skip("only with the sidecar: " + why)
	}
}

// startModule starts an Envoy with ordergate inside.
func (s *stack) startModule(config string, change settings) {
	s.t.Helper()
	s.envoy, s.gate = s.EnvoyWithModule(s.Module(), config, func(file string) (string, error) {
		if change.printed {
			return s.print("module", file, change.backend), nil
		}
		envoy, err := s.ModuleExample(file, change.backend)
		if err == nil && change.envoy != nil {
			envoy = change.envoy(envoy)
		}
		return envoy, err
	}, append(change.envoyArgs, change.env...)...)
	if !change.unready {
		must(s.t, s.gate.WaitReady(s.t.Context()))
	}
	s.url = "http://" + s.ListenerAddr(s.envoy, "orders")
}

package benchmark

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSettings(t *testing.T) {
	parse := func(args []string, stderr io.Writer) (s Settings, err error) {
		flags := flag.NewFlagSet("bench", flag.ContinueOnError)
		flags.SetOutput(stderr)
		s.Register(flags)
		return s, s.Parse(flags, args)
	}
	benchtest.Flags(t, parse, []benchtest.FlagTest[Settings]{
		{Name: "defaults", Want: Settings{5, false}},
		{Name: "all", Args: []string{"-rounds", "2", "-markdown"}, Want: Settings{2, true}},
		{Name: "no round", Args: []string{"-rounds", "0"}, Err: "-rounds 0: use 1 or more"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
		{Name: "help", Args: []string{"-help"}, Err: flag.ErrHelp.Error()},
	})
}

func TestPick(t *testing.T) {
	same := func(s string) string { return s }
	tests := []struct{ name, list, want, err string }{
		{"none is all", "", "a b c", ""},
		{"in their own order", "c,a", "a c", ""},
		{"unknown", "a,d", "", `-only "d": there are a, b, c`},
	}
	for _, tt := range tests {
		got, err := Pick("-only", tt.list, []string{"a", "b", "c"}, same)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if strings.Join(got, " ") != tt.want || text != tt.err {
			t.Errorf("%s: %v, %q; want %q, %q", tt.name, got, text, tt.want, tt.err)
		}
	}
}

func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	p := Profiles{CPU: filepath.Join(dir, "cpu"), Allocations: filepath.Join(dir, "mem")}
	stop, err := p.Start()
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p.CPU, p.Allocations} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", filepath.Base(path), info, err)
		}
	}
	p.CPU = filepath.Join(dir, "nowhere", "cpu")
	if _, err := p.Start(); err == nil {
		t.Error("a profile was made where there is no directory")
	}
}

// TestRedisCPU waits until Redis has charged itself for what it does.
func TestRedisCPU(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
	defer client.Close()
	before, err := RedisCPU(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "Redis has used time", func() bool {
		after, err := RedisCPU(t.Context(), client)
		return err == nil && after > before
	})
	if v := RedisVersion(t.Context(), client); !strings.Contains(v, ".") {
		t.Errorf("version %q", v)
	}
}

func TestParseCPU(t *testing.T) {
	const text = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\nused_cpu_user_children:9.0\r\n"
	if got, err := parseCPU(text); got != 1750*time.Millisecond || err != nil {
		t.Errorf("%v, %v; want 1.75s", got, err)
	}
	if _, err := parseCPU("used_cpu_sys:1.5\r\n"); err == nil {
		t.Error("half of the fields is no error")
	}
}

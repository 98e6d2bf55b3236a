package redislock

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// byDeed returns those that there are, by the name of their file.
func (s scripts) byDeed() map[string]*redisbatch.Script {
	all := map[string]*redisbatch.Script{
		"acquire": s.acquire, "release": s.release, "extend": s.extend,
		"reenter":  s.reenter,
		"handover": s.handover, "acquire_all": s.acquireAll, "raise": s.syncFence, "dequeue": s.dequeue,
	}
	maps.DeleteFunc(all, func(_ string, s *redisbatch.Script) bool { return s == nil })
	return all
}

// TestScripts has every script of every sort hold the definitions that it uses, and
// no others, and Redis accept it under the name that we give it.
func TestScripts(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, sort := range sorts {
			if sort.quorum {
				continue // whose scripts are those of the first
			}
			opts := sort.opts
			opts.ensureDefaults()
			scripts := scriptsOf(opts.Kind, opts.Format).byDeed()
			for _, deed := range []string{"inspect", "force"} {
				scripts[deed] = operatorScript(opts.Kind, opts.Format, deed)
			}
			scripts["alone_extend"], scripts["alone_release"] = extendAlone(), releaseAlone()
			for deed, script := range scripts {
				t.Run(sort.name+" "+deed, func(t *testing.T) {
					if hash, err := c.ScriptLoad(t.Context(), script.Text).Result(); err != nil || hash != script.Hash {
						t.Errorf("SCRIPT LOAD: %s, %v, want %s", hash, err, script.Hash)
					}
					checkNames(t, script.Text)
				})
			}
		}
	})
}

var (
	luaText  = regexp.MustCompile(`'[^'\n]*'`)
	luaField = regexp.MustCompile(`([\w)\]])\.[a-z]\w*`)
	luaName  = regexp.MustCompile(`\b[A-Za-z_]\w*`)
	// What declares names: for the lines as far indented, and for those further.
	luaLocal = regexp.MustCompile(`\blocal (?:function )?([\w, ]+)`)
	luaInner = regexp.MustCompile(`\b(?:function \w+\(|for )([\w, ]+)`)
)

// luaGiven are the words of Lua, and the names that Redis gives a script.
var luaGiven = strings.Fields(`and break do else elseif end false for function if in local nil not or repeat return then
	true until while ARGV KEYS ipairs math redis string tonumber tostring type unpack`)

// checkNames checks that a script declares each name before its use, and uses what
// it has of a library. It takes the scopes from how the lines are indented.
func checkNames(t *testing.T, text string) {
	t.Helper()
	text = luaField.ReplaceAllString(luaText.ReplaceAllString(text, "''"), "$1")
	declared, used := make(map[string]int), make(map[string]int) // how often
	known := make(map[string]int)                                // as far as lines are indented so far
	for line := range strings.Lines(text) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		maps.DeleteFunc(known, func(_ string, least int) bool { return least > indent })
		declare := func(what *regexp.Regexp, least int) {
			for _, names := range what.FindAllStringSubmatch(line, -1) {
				for _, name := range words(names[1]) {
					declared[name]++
					if outer, ok := known[name]; !ok || outer > least {
						known[name] = least
					}
				}
			}
		}
		declare(luaLocal, indent)
		declare(luaInner, indent+1)
		for _, name := range luaName.FindAllString(line, -1) {
			used[name]++
			if _, ok := known[name]; !ok && !slices.Contains(luaGiven, name) {
				t.Errorf("it does not declare %s: %s", name, line)
			}
		}
	}
	for _, name := range []string{"common", "owners", "shared", "entries", "parts", "hash", "text", "fair", "read", "write", "semaphore", "holders"} {
		for _, definition := range lua(name).definitions {
			switch name := definition.name; {
			case declared[name] > 1:
				t.Errorf("it declares %s %d times", name, declared[name])
			case declared[name] == 1 && used[name] == 1:
				t.Errorf("it has no use for %s", name)
			}
		}
	}
}

// TestNeeded is about definitions that replace others.
func TestNeeded(t *testing.T) {
	t.Parallel()
	function := func(name, calls string) string {
		return fmt.Sprintf("local function %s()\n  return %s\nend\n", name, calls)
	}
	constant := "local most = {\n  1\n}\n"
	for _, tt := range []struct {
		name    string
		library []string
		above   string
		deed    string
		want    []int // of the library
	}{
		{"nothing", []string{function("a", ""), constant}, "", "return 1", nil},
		{"a word within another", []string{function("a", ""), constant}, "", "return a_most", nil},
		{"through another", []string{constant, function("a", "most"), function("b", "a()"), function("c", "a()")}, "", "b()", []int{0, 1, 2}},
		{"the later of two", []string{function("a", "most"), constant, function("a", "2")}, "", "a()", []int{2}},
		{"the earlier too", []string{function("a", "1"), function("b", "a()"), function("a", "2")}, "", "b()\na()", []int{0, 1, 2}},
		{"the earlier alone", []string{function("a", "1"), function("b", "a()"), function("a", "2")}, "", "b()", []int{0, 1}},
		{"what is above", []string{constant, function("a", "most"), function("b", "a()")}, function("a", "most"), "b()", []int{2}},
		{"itself", []string{function("a", "1"), function("a", "a()")}, "", "a()", []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := ""
			for _, i := range tt.want {
				want += tt.library[i]
			}
			if diff := gocmp.Diff(want, needed(definitionsOf(strings.Join(tt.library, "")), tt.above, tt.deed)); diff != "" {
				t.Errorf("needed (-want +got):\n%s", diff)
			}
		})
	}
}

// BenchmarkScripts is what each locker costs at a start, and at a reload that adds it.
func BenchmarkScripts(b *testing.B) {
	for b.Loop() {
		scriptsOf(Exclusive, Redisson)
	}
}

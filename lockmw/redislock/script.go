package redislock

import (
	"embed"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

//go:embed lua/*.lua
var luaSources embed.FS

// scripts are the deeds of one kind of lock in one format. Each answers one integer, acquireAll
// several, or the text of a stored answer in their place. Each may be sent again by a client
// that lost the answer.
type scripts struct {
	acquire, release, extend *redisbatch.Script
	reenter                  *redisbatch.Script
	handover                 *redisbatch.Script // kind Exclusive
	acquireAll               *redisbatch.Script // kind Exclusive
	syncFence                *redisbatch.Script // kind Exclusive, of a quorum
	dequeue                  *redisbatch.Script // kind Fair

	// The same for calls whose answers are stored (stored.go), of kinds with one holder.
	acquireStored, acquireAllStored, reenterStored *redisbatch.Script
	acquireSince, storeSince                       *redisbatch.Script
	store, storeLong, forget, suspend, restore     *redisbatch.Script
}

// scriptsOf composes the scripts of a kind of lock in a format.
func scriptsOf(kind Kind, format Format) scripts {
	library := libraryOf(kind, format)
	of := func(deeds ...string) *redisbatch.Script { return compose(library, deeds...) }
	s := scripts{
		acquire: of("acquire"), release: of("release"), extend: of("extend"), reenter: of("reenter"),
	}
	if kind == Exclusive && format == Redisson {
		s.acquire, s.release = of("acquire_usual", "acquire"), of("release_usual", "release")
	}
	if !kind.shared() {
		s.acquireStored, s.reenterStored = of("stored", "acquire"), of("stored_inner", "reenter")
		s.acquireSince, s.storeSince = of("stored_since", "acquire"), of("store_since", "release")
		s.store, s.forget = of("store", "release"), of("forget", "release")
		s.storeLong = of("store", "together", "release")
		s.suspend, s.restore = of("suspend"), of("restore", "release")
	}
	if kind == Exclusive && format == Redisson {
		s.acquireStored, s.store = of("stored_usual", "stored", "acquire"), of("store_usual", "store", "release")
	}
	switch kind {
	case Exclusive:
		s.acquireAllStored = of("stored_all", "acquire_all")
		s.handover, s.acquireAll, s.syncFence = of("handover"), of("acquire_all"), of("raise")
	case Fair:
		s.dequeue = of("dequeue")
	}
	return s
}

// libraryOf returns the files of a lock's verbs: see lua/common.lua.
func libraryOf(kind Kind, format Format) []string {
	switch {
	case format == String:
		return []string{"common", "text", "parts"}
	case kind == Exclusive:
		return []string{"common", "owners", "hash", "parts"}
	case kind == Fair, kind == Write:
		return []string{"common", "owners", string(kind), "parts"}
	case kind == Read:
		return []string{"common", "shared", "entries", "read", "parts"}
	}
	return []string{"common", "shared", string(kind), "parts"}
}

// compose makes one script of deeds, one behind the other, and of what they use of a
// library. What a deed uses stands right before it: a script that ends before, has not
// made it.
func compose(library []string, deeds ...string) *redisbatch.Script {
	var definitions []definition
	for _, name := range library {
		definitions = append(definitions, lua(name).definitions...)
	}
	text := ""
	for _, name := range deeds {
		deed := lua(name).text
		text += needed(definitions, text, deed) + deed
	}
	return redisbatch.NewScript(text)
}

// composed is compose at the first use: a process that takes no lock reads no files.
func composed(library []string, deeds ...string) func() *redisbatch.Script {
	return sync.OnceValue(func() *redisbatch.Script { return compose(library, deeds...) })
}

// needed returns those definitions that a deed uses, and those that they use, unless they
// are above it: Redis makes all that a script defines anew each time it runs. Of several of
// one name that is the last above what uses it, as Lua has it.
func needed(library []definition, above, deed string) string {
	used := make(map[string]bool)
	use := func(names []string) {
		for _, name := range names {
			used[name] = true
		}
	}
	use(words(deed))
	text := ""
	for _, d := range slices.Backward(library) { // what one uses stands above it
		if used[d.name] {
			if !strings.Contains(above, d.text) {
				text = d.text + text
				use(d.words)
			}
			delete(used, d.name) // nothing above means this one
		}
	}
	return text
}

// luaFile is a file of the directory lua, without comments.
type luaFile struct {
	text        string
	definitions []definition
}

// definition is a function or a constant of a library.
type definition struct {
	name, text string
	words      []string // of the text
}

// lua returns a file of the directory lua.
func lua(name string) luaFile {
	file, ok := luaFiles()[name+".lua"]
	if !ok {
		panic("lua/" + name + ".lua does not exist")
	}
	return file
}

// luaFiles has each file by its name. It reads them once: every locker is made of them.
var luaFiles = sync.OnceValue(func() map[string]luaFile {
	entries, err := luaSources.ReadDir("lua")
	if err != nil {
		panic(err) // it is compiled in
	}
	files := make(map[string]luaFile)
	for _, entry := range entries {
		source, err := luaSources.ReadFile("lua/" + entry.Name())
		if err != nil {
			panic(err)
		}
		text := withoutComments(string(source))
		files[entry.Name()] = luaFile{text, definitionsOf(text)}
	}
	return files
})

func withoutComments(source string) string {
	var code strings.Builder
	for line := range strings.Lines(source) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimRight(line, " \n"); line != "" {
			code.WriteString(line + "\n")
		}
	}
	return code.String()
}

// definitionsOf returns what a text defines in lines that are not indented.
func definitionsOf(text string) []definition {
	var found []definition
	for _, text := range strings.Split("\n"+strings.TrimSuffix(text, "\n"), "\nlocal ")[1:] {
		text = "local " + text + "\n"
		names := words(text)
		name := names[1]
		if name == "function" {
			name = names[2]
		}
		found = append(found, definition{name, text, names})
	}
	return found
}

// words returns the names in a text of Lua, and what looks like one.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

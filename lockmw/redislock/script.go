package redislock

import (
	"crypto/sha1" // as Redis names scripts
	"embed"
	"encoding/hex"
	"regexp"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is a Lua script, and the name that Redis gives it.
type script struct{ text, hash string }

// scripts are the deeds of one kind of lock in one format. Each answers one
// integer, but for acquireAll, and may be asked again by a client that lost the
// answer.
type scripts struct {
	acquire, release, extend *script
	reenter, stay, leave     *script
	handover                 *script // kind Exclusive
	acquireAll               *script // kind Exclusive
	raise                    *script // kind Exclusive, of a quorum
	dequeue                  *script // kind Fair
}

// scriptsOf composes the scripts: see lua/common.lua.
func scriptsOf(kind Kind, format Format) scripts {
	verbs := string(kind)
	switch {
	case format == String:
		verbs = "text"
	case kind == Exclusive:
		verbs = "hash"
	}
	library := lua("common") + lua(verbs)
	compose := func(deeds ...string) *script {
		deed := ""
		for _, name := range deeds {
			deed += lua(name)
		}
		text := needed(library, deed) + deed
		sum := sha1.Sum([]byte(text))
		return &script{text: text, hash: hex.EncodeToString(sum[:])}
	}
	s := scripts{
		acquire: compose("acquire"), release: compose("release"), extend: compose("extend"),
		reenter: compose("reenter"), stay: compose("stay"), leave: compose("leave", "release"),
	}
	switch kind {
	case Exclusive:
		s.handover, s.acquireAll, s.raise = compose("handover"), compose("acquire_all"), compose("raise")
	case Fair:
		s.dequeue = compose("dequeue")
	case Semaphore:
		s.leave = compose("leave", "shared")
	}
	return s
}

// definition is a function or a value at the top level of a file of verbs.
var definition = regexp.MustCompile(`(?ms)^local (?:function (\w+).*?^end|(\w+) = [^\n]*)\n`)

// needed returns those definitions that a deed uses, and those that they use: Redis
// makes all that a script defines anew each time it runs.
func needed(library, deed string) string {
	all := definition.FindAllStringSubmatch(library, -1)
	text := ""
	for i := len(all) - 1; i >= 0; i-- { // what one uses stands before it
		name := all[i][1] + all[i][2]
		if regexp.MustCompile(`\b` + name + `\b`).MatchString(text + deed) {
			text = all[i][0] + text
		}
	}
	return text
}

// lua returns a file of the directory lua.
func lua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is compiled in
	}
	return string(text)
}

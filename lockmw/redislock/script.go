package redislock

import (
	"crypto/sha1" // as Redis names scripts
	"embed"
	"encoding/hex"
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
	compose := func(deeds ...string) *script {
		text := lua("common") + lua(verbs)
		for _, deed := range deeds {
			text += lua(deed)
		}
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

// lua returns a file of the directory lua.
func lua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is compiled in
	}
	return string(text)
}

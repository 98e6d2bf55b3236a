package redisbatch

import (
	"crypto/sha1" // as Redis names scripts
	"encoding/hex"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script.
type Script struct {
	Text string
	Hash string // the name that Redis gives it
	name []byte // the hash
}

// NewScript returns the script with a text.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	hash := hex.EncodeToString(sum[:])
	return &Script{Text: text, Hash: hash, name: []byte(hash)}
}

// SendByName has send send all calls with the names of their scripts. It sends those
// again, with the text, whose server did not know the name: it was flushed, restarted, or
// a replica before. ErrorOf returns the error of a call that was sent.
func SendByName[C any](calls []C, send func(calls []C, withText bool), errorOf func(C) error) {
	send(calls, false)
	var unknown []C
	for _, c := range calls {
		if redis.HasErrorPrefix(errorOf(c), "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		send(unknown, true)
	}
}

// EnsureErrors makes sure that the commands of a pipeline that failed have errors. Those of
// go-redis have their own, unless its last try fails in a way that it would try again: then
// they have neither an error nor a value.
func EnsureErrors(cmds []redis.Cmder, err error) {
	if err == nil || slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return
	}
	for _, c := range cmds {
		c.SetErr(err)
	}
}

// CountedText is an argument of a command that counts how often the client sent it.
type CountedText struct {
	text  []byte
	times int32 // atomic
}

// NewCountedText returns an argument that was not sent yet.
func NewCountedText(text string) *CountedText { return &CountedText{text: []byte(text)} }

// MarshalBinary is called by the client each time that it writes the command.
func (t *CountedText) MarshalBinary() ([]byte, error) {
	atomic.AddInt32(&t.times, 1)
	return t.text, nil
}

// Repeated reports whether a server may have seen the command before.
func (t *CountedText) Repeated() bool { return atomic.LoadInt32(&t.times) > 1 }

// String is what the client shows in errors.
func (t *CountedText) String() string { return string(t.text) }

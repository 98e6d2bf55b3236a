package redisbatch

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ScriptCall is one call of a script, and its answer. Make it with [NewCall], and give it
// to one method of a [ScriptBatcher], once: its memory is used again.
type ScriptCall struct {
	// Confirm says that the answer counts only once replicas have what the script wrote.
	Confirm bool
	// Queue has a worker send the call, also when nothing else is on its way: so the
	// caller can leave as soon as its context ends.
	Queue bool
	// Repeated is what the answer 0 means, that there is nothing to do, when the client
	// sent the call more than once: the first time may have done it.
	Repeated int64
	// MayAnswerText says that the script may answer a text in place of numbers. The caller
	// gets it as the error [TextAnswer].
	MayAnswerText bool

	script *Script
	list   bool        // the answer is a list
	sent   CountedText // the name of the script, or its text
	args   []any       // of EVALSHA: small numbers, and pointers into texts
	keys   int
	// texts holds the strings, so that to put one into args allocates nothing.
	texts []string

	done    chan struct{}
	then    func(int64, error) // of Start; nil: Do waits for done
	mu      sync.Mutex         // guards stop
	stop    func() bool        // has the end of the caller's context no longer matter; false: it does
	integer *redis.IntCmd
	several *redis.IntSliceCmd
	any     *redis.Cmd // with MayAnswerText
	err     error
}

const (
	firstKey  = 3 // EVALSHA hash numkeys key
	usualArgs = 16
	maxPooled = 32 // the memory of calls with more arguments is not kept
)

var pool = sync.Pool{New: func() any {
	return &ScriptCall{
		args: make([]any, 0, usualArgs), texts: make([]string, 0, usualArgs), done: make(chan struct{}, 1),
	}
}}

// NewCall returns a call of a script with its first key, which decides to which server of
// a cluster the call goes. Further keys follow by [ScriptCall.Key], then arguments by
// [ScriptCall.Text] and [ScriptCall.Number].
func NewCall(script *Script, key string) *ScriptCall {
	c := pool.Get().(*ScriptCall)
	c.Confirm, c.Queue, c.MayAnswerText, c.Repeated = false, false, false, 0
	c.script, c.list, c.keys, c.err, c.then = script, false, 0, nil, nil
	c.sent = CountedText{text: script.name}
	c.texts = c.texts[:0]
	c.args = append(c.args[:0], "evalsha", &c.sent, 0)
	return c.Key(key)
}

// Key adds a key.
func (c *ScriptCall) Key(k string) *ScriptCall {
	c.keys++
	return c.Text(k)
}

// Keys returns how many keys were added.
func (c *ScriptCall) Keys() int { return c.keys }

// Text adds an argument.
func (c *ScriptCall) Text(s string) *ScriptCall {
	c.texts = append(c.texts, s) // when it moves, args still points to the old ones
	c.args = append(c.args, &c.texts[len(c.texts)-1])
	return c
}

// Number adds an argument, a number in an interface, so that the caller can keep it.
func (c *ScriptCall) Number(n any) *ScriptCall {
	c.args = append(c.args, n)
	return c
}

// Done implements [Call].
func (c *ScriptCall) Done() {
	if c.then == nil {
		c.done <- struct{}{}
		return
	}
	c.mu.Lock()
	stop := c.stop
	c.mu.Unlock()
	if !stop() { // the caller has left
		c.done <- struct{}{}
		return
	}
	n, err, then := int64(0), c.err, c.then
	if err == nil {
		n = c.value()
	}
	c.recycle()
	if err != nil {
		go then(0, err)
		return
	}
	then(n, nil)
}

// recycle returns a call to the pool, once its answer was read. A call whose caller left
// before is not used again: a worker still has it.
func (c *ScriptCall) recycle() {
	c.integer, c.several, c.any, c.then, c.stop = nil, nil, nil, nil, nil
	if cap(c.args) <= maxPooled {
		pool.Put(c)
	}
}

// withText sends the script itself from now on, to a server that does not know its name.
// If the client sent the name more than once, a server that knew it may have run the
// script before.
func (c *ScriptCall) withText() {
	c.sent = CountedText{text: []byte(c.script.Text), times: c.sent.times - 1}
	c.args[0] = "eval"
}

// value returns the answer of a script that answers one integer.
func (c *ScriptCall) value() int64 {
	n := c.number()
	if n == 0 && c.sent.Repeated() {
		n = c.Repeated
	}
	return n
}

func (c *ScriptCall) firstKey() string { return *c.args[firstKey].(*string) }

// prepare makes the command: another one each time that the call is sent.
func (c *ScriptCall) prepare(ctx context.Context) {
	c.args[firstKey-1] = c.keys
	switch {
	case c.MayAnswerText:
		c.any = redis.NewCmd(ctx, c.args...)
	case c.list:
		c.several = redis.NewIntSliceCmd(ctx, c.args...)
	default:
		c.integer = redis.NewIntCmd(ctx, c.args...)
	}
}

func (c *ScriptCall) command() redis.Cmder {
	switch {
	case c.MayAnswerText:
		return c.any
	case c.list:
		return c.several
	}
	return c.integer
}

// answerError returns the error of a call that was sent: a text is one, too.
func (c *ScriptCall) answerError() error {
	if c.any != nil && c.any.Err() == nil {
		if text, ok := c.any.Val().(string); ok {
			return TextAnswer(text)
		}
	}
	return c.command().Err()
}

// number returns the answer of a script that answers one integer.
func (c *ScriptCall) number() int64 {
	if c.any != nil {
		n, _ := c.any.Val().(int64)
		return n
	}
	return c.integer.Val()
}

// numbers returns the answer of a script that answers a list of integers.
func (c *ScriptCall) numbers() []int64 {
	if c.any == nil {
		return c.several.Val()
	}
	values, _ := c.any.Val().([]any)
	list := make([]int64, len(values))
	for i, v := range values {
		list[i], _ = v.(int64)
	}
	return list
}

// refused reports whether the script answered that it did nothing.
func (c *ScriptCall) refused() bool {
	if c.list {
		return len(c.numbers()) == 0
	}
	return c.number() <= 0 && !c.isText()
}

// isText reports whether the script answered a text.
func (c *ScriptCall) isText() bool {
	_, is := errors.AsType[TextAnswer](c.err)
	return is
}

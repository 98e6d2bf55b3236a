package redislock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// question is one script call and its answer. Its memory is used again: see ask
// and forget.
type question struct {
	script  *script
	list    bool // the answer is a list
	confirm bool // by the replicas
	queue   bool // with others, also when there are none: the asker leaves when its context ends
	// again is what the answer 0 means, there is no such thing, when the client asked
	// more than once: the first time may have done it.
	again int64

	sent sending // the name of the script

	args []any // of EVALSHA: small numbers, and pointers into texts
	keys int
	// texts holds the strings, so that to put one into args allocates nothing.
	texts []string

	then    func(int64, error) // instead of done: see pipe.start
	ctx     context.Context    // of the asker, with then
	done    chan struct{}
	integer *redis.IntCmd
	several *redis.IntSliceCmd
	err     error
}

const (
	firstKey   = 3 // EVALSHA hash numkeys key
	usualArgs  = 16
	mostPooled = 32 // questions about more keys are not kept
)

var questions = sync.Pool{New: func() any {
	return &question{
		args: make([]any, 0, usualArgs), texts: make([]string, 0, usualArgs), done: make(chan struct{}, 1),
	}
}}

// ask returns a question about a lock, the first key. Its further keys follow by
// key, then its arguments by text and number. Whoever has read the answer
// forgets it; a question whose asker left before is not used again.
func ask(script *script, lock string) *question {
	q := questions.Get().(*question)
	q.script, q.list, q.confirm, q.queue, q.again, q.err, q.keys = script, false, false, false, 0, nil, 0
	q.sent = sending{text: script.name}
	q.then, q.ctx = nil, nil
	q.texts = q.texts[:0]
	q.args = append(q.args[:0], "evalsha", &q.sent, 0)
	return q.key(lock)
}

func (q *question) forget() {
	q.integer, q.several = nil, nil
	if cap(q.args) <= mostPooled {
		questions.Put(q)
	}
}

// answered tells the asker.
func (q *question) answered() {
	if q.then == nil {
		q.done <- struct{}{}
		return
	}
	then, n, err := q.then, int64(0), q.err
	if err == nil {
		n = q.value()
	}
	q.then, q.ctx = nil, nil
	q.forget()
	then(n, err)
}

func (q *question) key(k string) *question {
	q.keys++
	return q.text(k)
}

func (q *question) text(s string) *question {
	q.texts = append(q.texts, s) // when it moves, args still points to the old ones
	q.args = append(q.args, &q.texts[len(q.texts)-1])
	return q
}

// number takes a number in an interface, so that the caller can keep it.
func (q *question) number(n any) *question {
	q.args = append(q.args, n)
	return q
}

// entry adds the name of a call within a lease, if it is one.
func (q *question) entry(name string) *question {
	if name != "" {
		q.text(name)
	}
	return q
}

// withText has the script itself sent from now on, to a server that does not know
// its name. When the client sent the name more than once, one that knew it may have run
// the script before.
func (q *question) withText() {
	q.sent = sending{text: []byte(q.script.text), times: q.sent.times - 1}
	q.args[0] = "eval"
}

// value returns the answer of a script that answers one integer.
func (q *question) value() int64 {
	n := q.integer.Val()
	if n == 0 && q.sent.repeated() {
		n = q.again
	}
	return n
}

// sending is an argument that counts how often the client sent it. That of a cluster may
// send a batch to two nodes at once, after a node has both referred a command to another one
// and failed.
type sending struct {
	text  []byte
	times int32 // atomic
}

// MarshalBinary is called by the client each time that it writes the command.
func (s *sending) MarshalBinary() ([]byte, error) {
	atomic.AddInt32(&s.times, 1)
	return s.text, nil
}

// repeated reports whether a server may have seen it before.
func (s *sending) repeated() bool { return atomic.LoadInt32(&s.times) > 1 }

// String is what the client shows in errors.
func (s *sending) String() string { return string(s.text) }

func (q *question) lock() string { return *q.args[firstKey].(*string) }

// prepare makes the command: another one each time that the question is sent.
func (q *question) prepare(ctx context.Context) {
	q.args[firstKey-1] = q.keys
	if q.list {
		q.several = redis.NewIntSliceCmd(ctx, q.args...)
	} else {
		q.integer = redis.NewIntCmd(ctx, q.args...)
	}
}

func (q *question) command() redis.Cmder {
	if q.list {
		return q.several
	}
	return q.integer
}

// refused reports whether the answer is that of a script which did not do what it
// was asked to.
func (q *question) refused() bool {
	if q.list {
		return len(q.several.Val()) == 0
	}
	return q.integer.Val() <= 0
}

package redislock

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// question is one script call and its answer. Its memory is used again: see ask
// and forget.
type question struct {
	script  *script
	list    bool // the answer is a list
	confirm bool // by the replicas
	queue   bool // with others, also when there are none: the asker leaves when its context ends

	args []any // of EVALSHA: small numbers, and pointers into texts
	keys int
	// texts holds the strings, so that to put one into args allocates nothing.
	texts []string

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
	q.script, q.list, q.confirm, q.queue, q.err, q.keys = script, false, false, false, nil, 0
	q.texts = append(q.texts[:0], script.hash)
	q.args = append(q.args[:0], "evalsha", &q.texts[0], 0)
	return q.key(lock)
}

func (q *question) forget() {
	q.integer, q.several = nil, nil
	if cap(q.args) <= mostPooled {
		questions.Put(q)
	}
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

package testbed

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// RedissonThread is a Java thread of a [Redisson], to which its locks belong. It
// does one thing at a time: a call waits for the one before, so who waits for a
// lock and who releases it must be two threads.
type RedissonThread struct {
	conn  net.Conn
	lines *bufio.Reader
	owner string
	turn  chan struct{} // full while a call is under way
	last  RedissonTiming
}

// RedissonTiming is how a call went inside the Java process.
type RedissonTiming struct {
	Took     time.Duration
	Returned time.Time // by the clock of this machine, to the microsecond
}

// RedissonError is an exception that a call ended with.
type RedissonError struct {
	Class   string // such as "IllegalMonitorStateException"
	Message string
}

// Error returns the class and the message.
func (e *RedissonError) Error() string { return e.Class + ": " + e.Message }

// Thread starts a thread. Close ends it, once it does nothing: what it holds
// stays, and is renewed as long as the process lives.
func (r *Redisson) Thread(ctx context.Context) (*RedissonThread, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return nil, fmt.Errorf("starting a thread of %s: %w", r.name, err)
	}
	t := &RedissonThread{conn: conn, lines: bufio.NewReader(conn), turn: make(chan struct{}, 1)}
	if t.owner, err = t.call(ctx, "owner"); err != nil {
		conn.Close()
		return nil, err
	}
	return t, nil
}

// Close leaves the thread. A call that is under way ends with an error here, but
// goes on there.
func (t *RedissonThread) Close() error { return t.conn.Close() }

// Owner returns what the thread is called in Redis: the client's UUID, a colon
// and the number of the thread.
func (t *RedissonThread) Owner() string { return t.owner }

// Last returns the timing of the last call that was answered. It must not be
// asked while a call is under way.
func (t *RedissonThread) Last() RedissonTiming { return t.last }

// Waiting returns how many threads of the process wait for a lock, a permit or a latch,
// and have gone to sleep, so that only a message wakes them before their time. One that
// listens already may still be about to: Redisson forgets a message that finds
// nobody asleep where that wakes all readers at once.
func (t *RedissonThread) Waiting(ctx context.Context) (int, error) {
	n, _, err := t.intOf(ctx, "waiting")
	return int(n), err
}

// call has the thread do something and returns what that returned, "" for
// nothing. An exception is a [*RedissonError]. When the context ends first, the
// thread can't be used any more.
func (t *RedissonThread) call(ctx context.Context, command string, args ...string) (string, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("calling %s in Java: %w", command, context.Cause(ctx))
	}
	value, err := t.exchange(ctx, command, args)
	if err != nil {
		return "", fmt.Errorf("calling %s in Java: %w", command, err)
	}
	return value, nil
}

func (t *RedissonThread) exchange(ctx context.Context, command string, args []string) (string, error) {
	// Whoever reads or writes then ends at once.
	stop := context.AfterFunc(ctx, func() { _ = t.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var line strings.Builder
	line.WriteString(command)
	for _, a := range args {
		line.WriteString(" " + url.QueryEscape(a))
	}
	line.WriteString("\n")
	_, err := t.conn.Write([]byte(line.String()))
	answer := ""
	if err == nil {
		answer, err = t.lines.ReadString('\n')
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", err
	}
	return t.read(strings.TrimSuffix(answer, "\n"))
}

// read takes an answer of the agent apart.
func (t *RedissonThread) read(answer string) (string, error) {
	words := strings.Split(answer, " ")
	if len(words) < 4 {
		return "", fmt.Errorf("the agent answers %q", answer)
	}
	took, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return "", fmt.Errorf("reading the agent's answer: %w", err)
	}
	returned, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		return "", fmt.Errorf("reading the agent's answer: %w", err)
	}
	t.last = RedissonTiming{Took: time.Duration(took), Returned: time.UnixMicro(returned)}
	for i := 3; i < len(words); i++ {
		if words[i], err = url.QueryUnescape(words[i]); err != nil {
			return "", fmt.Errorf("reading the agent's answer: %w", err)
		}
	}
	if words[0] != "ok" {
		return "", &RedissonError{Class: words[3], Message: strings.Join(words[4:], " ")}
	}
	return words[3], nil
}

// boolOf calls what returns a Java boolean.
func (t *RedissonThread) boolOf(ctx context.Context, command string, args ...string) (bool, error) {
	value, err := t.call(ctx, command, args...)
	if err != nil {
		return false, err
	}
	return strconv.ParseBool(value)
}

// intOf calls what returns a Java int or long; null is 0 and false.
func (t *RedissonThread) intOf(ctx context.Context, command string, args ...string) (int64, bool, error) {
	value, err := t.call(ctx, command, args...)
	if err != nil || value == "" {
		return 0, false, err
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return n, true, err
}

// millis writes a time as the agent takes it.
func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

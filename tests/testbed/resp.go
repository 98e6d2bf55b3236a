package testbed

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// answerLimit bounds a question to a Redis: a paused one never answers.
const answerLimit = time.Second

// ask sends one command as [User] on a connection of its own and returns the
// answer: a string, an int64, nil, or a list of those.
func (r *Redis) ask(ctx context.Context, command ...string) (any, error) {
	answers, err := r.askAll(ctx, command)
	if err != nil {
		return nil, err
	}
	return answers[0], nil
}

// askText is ask for a command that answers with text.
func (r *Redis) askText(ctx context.Context, command ...string) (string, error) {
	answer, err := r.ask(ctx, command...)
	if err != nil {
		return "", err
	}
	text, ok := answer.(string)
	if !ok {
		return "", fmt.Errorf("asking %s for %s: the answer is %v", r.name, strings.Join(command, " "), answer)
	}
	return text, nil
}

// askAll is ask for several commands on one connection. It stops at the first that
// is refused.
func (r *Redis) askAll(ctx context.Context, commands ...[]string) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", r.name, err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("asking %s: %w", r.name, err)
	}
	in := bufio.NewReader(conn)
	var answers []any
	for _, command := range append([][]string{{"AUTH", User, Password}}, commands...) {
		_, err := io.WriteString(conn, request(command...))
		if err == nil {
			var answer any
			answer, err = reply(in)
			answers = append(answers, answer)
		}
		if err != nil {
			return nil, fmt.Errorf("asking %s for %s: %w", r.name, strings.Join(command, " "), err)
		}
	}
	return answers[1:], nil
}

func (r *Redis) dial(ctx context.Context) (net.Conn, error) {
	if r.certs == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", r.addr)
	}
	config, err := r.certs.ClientConfig()
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", r.addr)
}

// request writes a command as Redis's protocol has it.
func request(command ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// reply reads one answer of protocol version 2. Redis's own errors are errors.
func reply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty answer")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("an answer that begins with %q", line)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil //nolint:nilnil // Redis's nil is a value too
	case kind == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = reply(in); err != nil {
			return nil, err
		}
	}
	return list, nil
}

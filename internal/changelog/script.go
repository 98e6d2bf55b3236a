package changelog

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed enter.lua
	enterSource string
	//go:embed append.lua
	appendSource string
	//go:embed follow.lua
	followSource string
	//go:embed clear.lua
	clearSource string
	//go:embed join.lua
	joinSource string
	//go:embed forget.lua
	forgetSource string
	//go:embed leave.lua
	leaveSource string
	//go:embed recall.lua
	recallSource string
	//go:embed page.lua
	pageSource string
)

// withoutComments halves the size of a script.
func withoutComments(source string) string {
	var out strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// noRetryClient keeps go-redis from repeating a script after an error. A repeated script would use
// the same nonce on another server, and their entries would be indistinguishable.
type noRetryClient struct{ redis.UniversalClient }

type noRetryCmd struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (noRetryCmd) NoRetry() bool { return true }

// EvalSha implements redis.Scripter.
func (c noRetryClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return c.do(ctx, "evalsha", sha, keys, args)
}

// Eval implements redis.Scripter.
func (c noRetryClient) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	return c.do(ctx, "eval", source, keys, args)
}

func (c noRetryClient) do(ctx context.Context, how, script string, keys []string, args []any) *redis.Cmd {
	all := append(make([]any, 0, 3+len(keys)+len(args)), how, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	_ = c.Process(ctx, noRetryCmd{cmd})
	return cmd
}

// runScript runs a script with a nonce of its own, which it returns. If the connection was lost, it
// runs the script once more with another nonce.
func (l *Log) runScript(ctx context.Context, script *redis.Script, keys []string, args ...any) (nonce string, cmd *redis.Cmd) {
	for range 2 {
		nonce = newNonce()
		cmd = script.Run(ctx, noRetryClient{l.client}, keys, append([]any{nonce, l.opts.MinEntries}, args...)...)
		if _, lost := errors.AsType[*net.OpError](cmd.Err()); !lost && !errors.Is(cmd.Err(), io.EOF) || ctx.Err() != nil {
			break
		}
	}
	return nonce, cmd
}

// newNonce returns eight random characters. They identify a log, and distinguish entries with the
// same sequence number. They have 48 bits and are compared with one other nonce at a time: a false
// match has a probability of 1 in 2.8e14.
func newNonce() string {
	var b [6]byte
	rand.Read(b[:]) // never fails, see its documentation
	return base64.RawURLEncoding.EncodeToString(b[:])
}

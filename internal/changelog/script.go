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

// withoutComments halves what goes to Redis.
func withoutComments(source string) string {
	var out strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// once has go-redis not repeat a script after an error: another server would get the same
// nonce, and nobody could tell their entries apart.
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

// run runs a script with a nonce of its own, which it returns, and once more with another one if the connection
// was lost.
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

// newNonce returns eight characters that make an entry unlike any other with the
// same sequence number, and a log unlike any other. 48 bits: it is compared with
// one other at a time, so a mistaken match is one in 2.8e14.
func newNonce() string {
	var b [6]byte
	rand.Read(b[:]) // never fails, by its documentation
	return base64.RawURLEncoding.EncodeToString(b[:])
}

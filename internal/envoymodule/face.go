// Package envoymodule decides inside Envoy's own process: it shows requests to the
// gate, and does what that says, as an HTTP filter of a dynamic module.
//
// Start with [NewFace]; [Face.Create] makes the filter of one stream. What to do at
// each event is decided by internal/gate, as for the other faces. Envoy calls a
// filter from the one worker thread that its stream belongs to, and that thread has
// other streams: nothing here may block it. Whatever takes time (a read of the change
// log, a lock, learning) has a goroutine of its own, which hands its result to the
// worker by the stream's scheduler. Envoy drops what is scheduled for a stream that
// is over.
package envoymodule

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go/shared"

	"github.com/ordergate/ordergate/internal/gate"
)

// Options bounds what a [Face] does on behalf of a call.
type Options struct {
	LearnTimeout   time.Duration // to make a new order known, or the others unsure, before its answer is passed on; 0: 3s
	CleanupTimeout time.Duration // to give a lock up after its call; 0: 2s
	// FailureModeAllow passes every request on that a fault of ours hits before it is
	// judged. Without it that is so for GET and HEAD; the others are answered with 503.
	FailureModeAllow bool
	Logger           *slog.Logger // nil: none
}

// Face shows the streams of one gate to it. It is safe for concurrent use.
type Face struct {
	gate     *gate.Gate
	opts     Options
	log      *slog.Logger
	refusals [][gate.Refusals]*reply // by rule; read-only

	ctx    context.Context // of what works for streams; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// reply is an answer in the backend's stead.
type reply struct {
	status  uint32
	headers [][2]string
	body    []byte
	details string
}

// NewFace returns a face that does what g decides.
func NewFace(g *gate.Gate, opts Options) *Face {
	if opts.LearnTimeout == 0 {
		opts.LearnTimeout = 3 * time.Second
	}
	if opts.CleanupTimeout == 0 {
		opts.CleanupTimeout = 2 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Face{gate: g, opts: opts, log: opts.Logger}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.refusals, _ = gate.Prepare(g, func(r gate.Reply, v gate.Verdict) (*reply, error) {
		return replyOf(r, v), nil // it never fails
	})
	return f
}

func replyOf(r gate.Reply, v gate.Verdict) *reply {
	headers := [][2]string{{gate.HeaderVerdict, v.String()}}
	for _, h := range r.Headers() {
		headers = append(headers, [2]string{h.Name, h.Value})
	}
	return &reply{uint32(r.Status), headers, []byte(r.Body), "ordergate_" + v.String()}
}

// fault is the answer to a request that a fault of ours has hit.
var fault = &reply{503, [][2]string{{gate.HeaderVerdict, gate.VerdictUnavailable.String()}}, nil, "ordergate_fault"}

// Create returns the filter of one stream.
func (f *Face) Create(handle shared.HttpFilterHandle) shared.HttpFilter {
	return &stream{face: f, envoy: handle}
}

// Close waits until everything is done that works for streams which are over: locks
// are given up, orders learned. It blocks for at most the time given; what is not done
// then is cut off, and its leases end by themselves. No stream may begin meanwhile.
func (f *Face) Close(within time.Duration) {
	timer := time.AfterFunc(within, f.cancel)
	f.work.Wait()
	timer.Stop()
	f.cancel()
}

// cleanupContext outlives the stream: a lock is given up after its call ended.
func (f *Face) cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, f.opts.CleanupTimeout)
}

// recovered logs a fault of ours. Envoy would otherwise die of it, and every stream
// with it.
func (f *Face) recovered(at string, fault any) {
	f.log.Error("a fault in ordergate", "at", at, "fault", fault, "stack", string(debug.Stack()))
}

// spawn runs something on behalf of a stream.
func (f *Face) spawn(at string, do func()) {
	f.work.Add(1)
	go func() {
		defer f.work.Done()
		defer func() {
			if v := recover(); v != nil {
				f.recovered(at, v)
			}
		}()
		do()
	}()
}

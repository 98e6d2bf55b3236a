package redisconn

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/ordergate/ordergate/internal/wait"
)

// embedded is a Redis in this process, for trying ordergate out.
type embedded struct {
	addr string
	stop func()
}

// embedStep is the resolution of the embedded Redis's clock: its keys expire up to this much
// late.
const embedStep = 10 * time.Millisecond

func embed(ctx context.Context) (*embedded, error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // its clock stands still without this
		defer close(done)
		last := time.Now()
		for now := range wait.Every(ctx, embedStep) {
			server.FastForward(now.Sub(last))
			last = now
		}
	}()
	return &embedded{addr: server.Addr(), stop: func() {
		cancel()
		<-done
		server.Close()
	}}, nil
}

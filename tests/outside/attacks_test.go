package outside

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// attack is one way to do harm with HTTP alone, by several clients with an address each.
type attack struct {
	network int           // their addresses are 127.0.<network>.<n>
	clients int           // how many
	every   time.Duration // how long each waits before it does it once more
	once    func(ctx context.Context, a *assault, from string, n int)
}

func (k attack) from(client int) string { return fmt.Sprintf("127.0.%d.%d", k.network, client+1) }

var attacks = map[string]attack{
	"settlements in pieces":       {21, 4, 100 * time.Millisecond, trickle},
	"aborted settlements":         {22, 1, time.Second, fillQueue},
	"creates without a client":    {23, 4, 120 * time.Millisecond, leave},
	"odd creates":                 {24, 2, 150 * time.Millisecond, oddCreate},
	"half-open HTTP/2":            {25, 4, time.Second, halfOpen},
	"forged headers":              {26, 2, 150 * time.Millisecond, forge},
	"made-up lookups":             {27, 4, 5 * time.Millisecond, madeUp},
	"made-up settlements":         {28, 2, 100 * time.Millisecond, madeUpSettlement},
	"resets":                      {33, 2, 100 * time.Millisecond, reset},
	"raw bytes":                   {29, 2, 50 * time.Millisecond, rawBytes},
	"Envoy's headers":             {30, 2, 150 * time.Millisecond, envoyHeaders},
	"answers that are not read":   {31, 2, time.Second, unread},
	"connections without request": {32, 2, 50 * time.Millisecond, silent},
	"settlements beside others":   {34, 1, 500 * time.Millisecond, settleBeside},
}

// trickle settles the victim a byte at a time.
func trickle(ctx context.Context, a *assault, from string, n int) {
	conn, err := a.dial(ctx, from)
	if err != nil {
		a.count("in pieces: " + errorOf(err))
		return
	}
	defer conn.Close()
	head := "Content-Length: 1000"
	if n%2 == 0 {
		head = "Transfer-Encoding: chunked\r\n\r\n1000"
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: shop\r\n%s\r\n\r\n", settleOf(a.victim(), "?in=pieces"), head)
	for range 1000 {
		pause(ctx, a.hold/30)
		if _, err := conn.Write([]byte("x")); err != nil || ctx.Err() != nil {
			break
		}
	}
	a.count("in pieces: ended")
}

// fillQueue begins settlements that take their time, and leaves: many of other orders, for
// which the order service is busy for longer than a lock is held, and then the victim's.
// That runs when its lock has ended, beside the next one.
func fillQueue(ctx context.Context, a *assault, _ string, n int) {
	client := func(i int) string { return fmt.Sprintf("127.0.22.%d", i+1) }
	const clients = workers // each may write 20 times at once
	enough := workers*int(a.hold/a.slow) + workers/2
	filling, stop := context.WithTimeout(ctx, a.hold/2)
	defer stop()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for filling.Err() == nil {
				a.abandon(filling, client(i), settleOf(1+rand.IntN(others), "?slow=%d", a.slow.Milliseconds()), "", 100*time.Millisecond)
			}
		})
	}
	for a.waiting() < enough && filling.Err() == nil {
		pause(filling, 100*time.Millisecond)
	}
	stop()
	all.Wait()
	victim := settleOf(seeded-20_000+n+1, "?slow=%d", a.slow.Milliseconds())
	a.count(fmt.Sprintf("aborted settlements: %d00 wait in the queue", a.waiting()/100))
	a.abandon(ctx, client(clients), victim, "", 200*time.Millisecond)
	pause(ctx, a.hold+200*time.Millisecond)
	c := a.client(client(clients + 1))
	defer c.CloseIdleConnections()
	for range 20 {
		status, _, _, _ := a.send(ctx, c, "POST", victim, "")
		a.count(fmt.Sprintf("aborted settlements, the next one: %d", status))
		if status == http.StatusOK || ctx.Err() != nil {
			return
		}
		pause(ctx, 150*time.Millisecond)
	}
}

// settleBeside begins the settlement of an order, and has another client settle it while the order service
// is at work: for a first one that waits for its answer, and for one that has left.
func settleBeside(ctx context.Context, a *assault, _ string, n int) {
	settle := settleOf(seeded-30_000+n+1, "?slow=%d", a.slow.Milliseconds()/2)
	client := func(i int) string { return fmt.Sprintf("127.0.34.%d", (2*n+i)%250+1) } // who leaves often is slowed
	stays := []time.Duration{100 * time.Millisecond, a.slow}[n%2]
	var first sync.WaitGroup
	first.Go(func() { a.abandon(ctx, client(0), settle, "", stays) })
	pause(ctx, 200*time.Millisecond)
	c := a.client(client(1))
	defer c.CloseIdleConnections()
	status, _, _, _ := a.send(ctx, c, "POST", settle, "")
	first.Wait()
	a.count(fmt.Sprintf("settlements beside others: %d", status))
}

// leave creates an order, and leaves before the answer.
func leave(ctx context.Context, a *assault, from string, n int) {
	a.abandon(ctx, from, "/orders", `{"amount":5}`, time.Duration(rand.IntN(4))*time.Millisecond)
	a.count("creates without a client")
}

// abandon posts and closes the connection after a while.
func (a *assault) abandon(ctx context.Context, from, target, body string, after time.Duration) {
	conn, err := a.dial(ctx, from)
	if err != nil {
		a.count("aborted: " + errorOf(err))
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)
	pause(ctx, after)
}

var oddBodies = []string{
	`{"amount":1e999}`, `{"amount":"1e999"}`, `{"amount":1,"orderId":9223372036854775807}`, `{"amount":"1\n"}`, `{}`, `[`, ``,
	`{"amount":1,"orderId":"00007"}`, `{"amount":1,"orderId":[1]}`, `{"amount":1,"orderId":1}`, `{"amount":1,"orderId":1e5}`, "\xff",
}

func oddCreate(ctx context.Context, a *assault, from string, n int) {
	client := a.client(from)
	defer client.CloseIdleConnections()
	status, _, _, _ := a.send(ctx, client, "POST", "/orders", oddBodies[n%len(oddBodies)], "Content-Type", "application/json")
	a.count(fmt.Sprintf("odd creates: %d", status))
}

// halfOpen opens settlements on one connection until it is refused, and leaves them open.
func halfOpen(ctx context.Context, a *assault, from string, n int) {
	c, err := a.rawHTTP2(ctx, from)
	if err != nil {
		a.count("half-open: " + errorOf(err))
		return
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c.Conn) }() // ends with the connection
	for i := range 400 {
		_, err := c.open(false, ":method", "POST", ":scheme", "http", ":authority", "shop", ":path", settleOf(1+rand.IntN(others), ""), "content-length", "10")
		if err != nil {
			break
		}
		if i%100 == 99 {
			pause(ctx, a.hold/6)
		}
	}
	a.count("half-open connections")
}

// reset opens lookups, settlements and creates on one connection, and resets each at once,
// until Envoy closes the connection.
func reset(ctx context.Context, a *assault, from string, n int) {
	c, err := a.rawHTTP2(ctx, from)
	if err != nil {
		a.count("resets: " + errorOf(err))
		return
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c.Conn) }() // ends with the connection
	for i := 0; i < 5000 && ctx.Err() == nil; i++ {
		method, path := "GET", fmt.Sprintf("/orders/%d", int64(1e9)+rand.Int64N(1e17))
		switch i % 10 {
		case 0:
			method, path = "POST", settleOf(1+rand.IntN(others), "")
		case 1:
			method, path = "POST", "/orders"
		}
		stream, err := c.open(true, ":method", method, ":scheme", "http", ":authority", "shop", ":path", path)
		if err != nil || c.frames.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			break
		}
	}
	a.count("connections with resets")
}

var forgedHeaders = [][2]string{
	{"x-ordergate-fence", "9999999999"}, {"x.ordergate.fence", "9999999999"}, {"X_Ordergate_Fence", "9999999999"}, {"x-ordergate.fence", "9"},
	{"x-ordergate-key", "order:lock:1"}, {"x.ordergate.key", "order:lock:1"}, {"x-ordergate-lease", "somebody:1"}, {"x.ordergate-lease", "somebody:1"},
	{"x-ordergate-verdict", "acquired"}, {"x-ordergate-settled-at", "0"}, {"x-ordergate-lease-lost", "true"}, {"x-original-url", "/orders/1/settle"},
}

func forge(ctx context.Context, a *assault, from string, n int) {
	client := a.client(from)
	defer client.CloseIdleConnections()
	header := forgedHeaders[n%len(forgedHeaders)]
	status, _, _, _ := a.send(ctx, client, "POST", settleOf(a.victim(), "?slow=%d", a.slow.Milliseconds()/2), "", header[0], header[1])
	a.count(fmt.Sprintf("forged headers: %d", status))
}

// madeUp looks up orders that nobody has, one after the other on one connection.
func madeUp(ctx context.Context, a *assault, from string, n int) {
	client := a.client(from)
	defer client.CloseIdleConnections()
	for range 100 {
		status, verdict, err := a.lookup(ctx, client, fmt.Sprint(1e9+rand.Int64N(1e17)))
		if err != nil {
			if ctx.Err() == nil {
				a.count("made-up lookups: " + errorOf(err))
			}
			return
		}
		a.mu.Lock()
		second := &a.flood[min(int(time.Since(a.begun)/time.Second), len(a.flood)-1)]
		second.sent++
		if status == http.StatusNotFound && verdict == "absent" {
			second.absent++
		}
		a.mu.Unlock()
		pause(ctx, 5*time.Millisecond)
	}
}

func madeUpSettlement(ctx context.Context, a *assault, from string, n int) {
	client := a.client(from)
	defer client.CloseIdleConnections()
	status, _, _, _ := a.send(ctx, client, "POST", fmt.Sprintf("/orders/%d/settle", int64(1e9)+rand.Int64N(1e17)), "")
	a.count(fmt.Sprintf("made-up settlements: %d", status))
}

func rawBytes(ctx context.Context, a *assault, from string, n int) {
	if n%2 == 0 {
		junk := make([]byte, 200)
		for i := range junk {
			junk[i] = byte(rand.Uint32())
		}
		if conn, err := a.dial(ctx, from); err == nil {
			_, _ = conn.Write(append([]byte("GET /orders/\x9b"), junk...))
			_ = conn.Close()
		}
		return
	}
	c, err := a.rawHTTP2(ctx, from)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.open(true, ":method", "GET", ":scheme", "http", ":authority", "shop", ":path", "/\x9b31m\u0085/"+string(rune(0x80+n%0x20)), "x\x00y", "z")
	_, _ = c.open(true, ":method", "GET", ":scheme", "http", ":authority", "shop", ":path", "/orders/\x9b31m"+string([]byte{byte(0x80 + n%0x40)}))
	pause(ctx, 20*time.Millisecond)
	a.count("connections with raw bytes")
}

// envoyHeaders asks Envoy to send settlements again, and side by side.
func envoyHeaders(ctx context.Context, a *assault, from string, n int) {
	client := a.client(from)
	defer client.CloseIdleConnections()
	status, _, _, _ := a.send(ctx, client, "POST", settleOf(1+rand.IntN(others), "?slow=200"), "",
		"X-Envoy-Retry-On", "5xx,reset,connect-failure", "X-Envoy-Max-Retries", "5", "X-Envoy-Hedge-On-Per-Try-Timeout", "true",
		"X-Envoy-Upstream-Rq-Per-Try-Timeout-Ms", "20", "X-Envoy-Upstream-Rq-Timeout-Ms", "100", "X-Forwarded-For", "10.0.0.1")
	a.count(fmt.Sprintf("Envoy's headers: %d", status))
}

// unread asks for answers that take a while, and reads none.
func unread(ctx context.Context, a *assault, from string, n int) {
	conn, err := a.dial(ctx, from)
	if err != nil {
		return
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(1)
	}
	fmt.Fprintf(conn, "GET /orders/%d/statement?chunks=100&every=50 HTTP/1.1\r\nHost: shop\r\n\r\n", 1+rand.IntN(others))
	pause(ctx, 10*time.Second)
	a.count("answers that are not read")
}

// silent connects, and says nothing for a while.
func silent(ctx context.Context, a *assault, from string, n int) {
	conn, err := a.dial(ctx, from)
	if err != nil {
		a.count("silent: " + errorOf(err))
		return
	}
	go func() {
		defer conn.Close()
		pause(ctx, 10*time.Second)
	}()
	a.count("silent connections")
}

// errorOf leaves the addresses out of an error, which are others each time.
func errorOf(err error) string {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err.Error()
		}
		err = inner.Unwrap()
	}
}

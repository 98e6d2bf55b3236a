package faults

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// translator stands between one sidecar and the Sentinels, and gives it the addresses
// of its own proxies for those of the servers: Sentinels tell all clients the same.
type translator struct {
	t  *testing.T
	wg sync.WaitGroup

	mu    sync.Mutex
	names *strings.Replacer
	open  map[io.Closer]struct{}
	done  bool
}

func newTranslator(t *testing.T) *translator {
	t.Helper()
	tr := &translator{t: t, names: strings.NewReplacer(), open: make(map[io.Closer]struct{})}
	t.Cleanup(func() {
		tr.mu.Lock()
		tr.done = true
		for c := range tr.open {
			_ = c.Close()
		}
		tr.mu.Unlock()
		tr.wg.Wait()
	})
	return tr
}

// set says what each address is called. All are of this machine, so that only ports
// differ; those of the kernel's choice have five digits, which keeps the length of
// every text.
func (tr *translator) set(names map[string]string) {
	tr.t.Helper()
	var pairs []string
	for from, to := range names {
		_, old, err := net.SplitHostPort(from)
		_, seen, err2 := net.SplitHostPort(to)
		if err != nil || err2 != nil || len(old) != len(seen) {
			tr.t.Fatalf("%s can't be called %s", from, to)
		}
		// In an answer, and in a message of an event.
		pairs = append(pairs, "\r\n"+old+"\r\n", "\r\n"+seen+"\r\n", " "+old, " "+seen)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.names = strings.NewReplacer(pairs...)
}

// listen returns the address at which a Sentinel is heard in translation.
func (tr *translator) listen(sentinel string) string {
	tr.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.keep(l)
	tr.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			server, err := net.Dial("tcp", sentinel)
			if err != nil {
				_ = client.Close()
				continue
			}
			if !tr.keep(client) || !tr.keep(server) {
				_, _ = client.Close(), server.Close()
				return
			}
			tr.wg.Go(func() { tr.carry(client, server, func(text string) string { return text }) })
			tr.wg.Go(func() { tr.carry(server, client, tr.translate) })
		}
	})
	return l.Addr().String()
}

func (tr *translator) keep(c io.Closer) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.open[c] = struct{}{}
	return !tr.done
}

func (tr *translator) translate(text string) string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.names.Replace(text)
}

// carry takes one direction. What a Sentinel says at once comes at once: it writes each
// answer whole, and they are short.
func (tr *translator) carry(from, to net.Conn, change func(string) string) {
	defer func() {
		for _, c := range []net.Conn{from, to} {
			_ = c.Close()
			tr.mu.Lock()
			delete(tr.open, c)
			tr.mu.Unlock()
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := io.WriteString(to, change(string(buffer[:n]))); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

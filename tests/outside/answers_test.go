package outside

import (
	"bufio"
	"fmt"
	"net/http"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLeavesDuringTheAnswer settles at a service that prints its page before it pays, as old
// scripts do, and leaves when the page begins. The service goes on, so that the next
// settlement of the order finds it locked.
func TestLeavesDuringTheAnswer(t *testing.T) {
	t.Parallel()
	onBoth(t, change{backend: true}, func(t *testing.T, s *site) {
		for i, query := range []string{"?prints", "?prints=chunks"} {
			path := fmt.Sprintf("/orders/%d/settle%s", i+1, query)
			conn, err := s.dial(t.Context(), "127.0.1.1")
			bedtest.Check(t, err)
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n", path)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			bedtest.Check(t, err)
			bedtest.Check(t, conn.Close())
			_ = resp.Body.Close()
			if status, h := s.ask("127.0.1.2", "POST", path); status != 409 || h.Get("x-ordergate-verdict") != "busy" {
				t.Errorf("%s: while the service works, the next one got %d", path, status)
			}
		}
		if status, _ := s.ask("127.0.1.2", "POST", "/orders/9/settle?prints=whole"); status != 200 {
			t.Errorf("got %d", status)
		}
		bedtest.Eventually(t, "an answer that ends frees its order", func() bool {
			return s.redis.Exists(t.Context(), "order:lock:9").Val() == 0
		})
	})
}

// TestRangesOfCreates asks for a part of the answer to a create. Apache cuts it, or answers
// 416, when the script has made the order: the header does not reach it.
func TestRangesOfCreates(t *testing.T) {
	t.Parallel()
	onBoth(t, change{backend: true}, func(t *testing.T, s *site) {
		s.ask("127.0.1.1", "POST", "/orders", "Range", "bytes=99999-", "If-Range", `"x"`, "Accept-Encoding", "gzip")
		s.ask("127.0.1.1", "GET", "/orders/5", "Range", "bytes=0-3")
		s.backend.mu.Lock()
		defer s.backend.mu.Unlock()
		for _, r := range s.backend.seen {
			if cut := r.Header.Get("Range") + r.Header.Get("If-Range"); r.Method == http.MethodPost && cut != "" {
				t.Errorf("the backend is asked for a part: %q", cut)
			} else if r.URL.Path == "/orders/5" && cut == "" {
				t.Error("a lookup lost its Range")
			}
		}
	})
}

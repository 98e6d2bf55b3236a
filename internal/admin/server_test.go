package admin

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLongChange has a change take longer than the time limit of reading, which is for the
// request alone.
func TestLongChange(t *testing.T) {
	t.Parallel()
	began, release, outcome := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	server := &http.Server{
		ReadTimeout: 2 * time.Second, // enough to read two bytes on a busy machine
		Handler: guard(&config.Listen{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			began <- string(body)
			<-release
			outcome <- r.Context().Err()
			_, _ = io.WriteString(w, "done")
		})),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bedtest.Check(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()

	answer := make(chan string, 1)
	go func() {
		transport := &http.Transport{DisableKeepAlives: true}
		resp, err := (&http.Client{Transport: transport}).Post("http://"+l.Addr().String()+"/", "application/json", strings.NewReader("{}"))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answer <- string(text)
	}()
	select {
	case body := <-began:
		if body != "{}" {
			t.Errorf("the handler read %q", body)
		}
	case text := <-answer:
		t.Fatalf("the handler was not asked: %q", text)
	}
	// A connection that begins now, and is closed for being slow, tells that the time is over.
	slow, err := net.Dial("tcp", l.Addr().String())
	bedtest.Check(t, err)
	defer slow.Close()
	_, err = io.WriteString(slow, "GET / HTTP/1.1\r\n")
	bedtest.Check(t, err)
	_, _ = io.ReadAll(slow)
	close(release)
	if err := <-outcome; err != nil {
		t.Errorf("the change was broken off: %v", err)
	}
	if text := <-answer; text != "done" {
		t.Errorf("the client got %q", text)
	}
}

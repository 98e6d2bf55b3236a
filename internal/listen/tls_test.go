package listen

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestTLSFilesAreReadAgain renews the certificates and the authority, badly and well.
func TestTLSFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	first, second := newCertificates(t), newCertificates(t)
	put := func(c *testbed.Certificates) {
		for name, from := range map[string]string{"cert": c.ServerCert, "key": c.ServerKey, "ca": c.CA} {
			text, err := os.ReadFile(from)
			bedtest.Check(t, err)
			bedtest.Check(t, os.WriteFile(path(name), text, 0o600))
		}
	}
	put(first)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	bedtest.Check(t, err)
	var log bytes.Buffer
	l, err := WithTLS(plain, &config.ListenTLS{Cert: path("cert"), Key: path("key"), CA: path("ca")}, []string{"h2"}, slog.New(slog.NewTextHandler(&log, nil)))
	bedtest.Check(t, err)
	done := make(chan struct{})
	go func() { defer close(done); echo(l) }()
	defer func() { _ = l.Close(); <-done }()

	wantServed(t, l.Addr(), first, true)
	wantServed(t, l.Addr(), second, false)
	bedtest.Check(t, os.WriteFile(path("cert"), []byte("half a fi"), 0o600))
	wantServed(t, l.Addr(), first, true)
	wantServed(t, l.Addr(), second, false)
	put(second)
	wantServed(t, l.Addr(), second, true)
	wantServed(t, l.Addr(), first, false)
	_ = l.Close()
	<-done
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "listen.tls.cert") {
		t.Errorf("the log has %q", text)
	}
}

// TestTLSNames has a client's certificate of the right authority, and names that it has or not.
func TestTLSNames(t *testing.T) {
	t.Parallel()
	certs := newCertificates(t)
	for _, tt := range []struct {
		names []string
		want  bool
	}{
		{nil, true},
		{[]string{"other.test", testbed.ClientName}, true},
		{[]string{"spiffe://testbed/client"}, true},
		{[]string{"other.test"}, false},
		{[]string{"testbed client"}, false}, // the common name says nothing
		{[]string{"spiffe://testbed"}, false},
	} {
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		bedtest.Check(t, err)
		settings := &config.ListenTLS{Cert: certs.ServerCert, Key: certs.ServerKey, CA: certs.CA, Names: tt.names}
		l, err := WithTLS(plain, settings, []string{"h2"}, slog.Default())
		bedtest.Check(t, err)
		done := make(chan struct{})
		go func() { defer close(done); echo(l) }()
		t.Log(tt.names)
		wantServed(t, l.Addr(), certs, tt.want)
		_ = l.Close()
		<-done
	}
}

func TestTLSFilesAreMissing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bedtest.Check(t, err)
	defer l.Close()
	if _, err := WithTLS(l, &config.ListenTLS{CA: "/none"}, nil, slog.Default()); err == nil || err.Error() != "reading listen.tls.ca: no such file or directory" {
		t.Errorf("%v", err)
	}
}

func newCertificates(t *testing.T) *testbed.Certificates {
	t.Helper()
	c, err := testbed.NewCertificates(t.TempDir())
	bedtest.Check(t, err)
	return c
}

// echo sends what it receives back, on each connection in turn, until the listener ends.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}
}

// wantServed connects with the client's certificate of some authority.
func wantServed(t *testing.T, addr net.Addr, certs *testbed.Certificates, want bool) {
	t.Helper()
	c, err := certs.ClientConfig()
	bedtest.Check(t, err)
	c.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", addr.String(), c)
	answer := make([]byte, 4)
	if err == nil {
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte("ping"))
		_, err = io.ReadFull(conn, answer)
	}
	if (err == nil) != want {
		t.Errorf("served: %v, want %v: %v", err == nil, want, err)
	}
	if err == nil && conn.ConnectionState().NegotiatedProtocol != "h2" {
		t.Errorf("protocol %q", conn.ConnectionState().NegotiatedProtocol)
	}
}

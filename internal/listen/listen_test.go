package listen

import (
	"go.uber.org/goleak"

	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keepFile has a listener leave its socket file behind, as a process that is killed does.
func keepFile(l net.Listener) { l.(*net.UnixListener).SetUnlinkOnClose(false) }

func TestListen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.sock")
	first, err := Listen("unix:"+path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen("unix:"+path, 0o660); !errors.Is(err, syscall.EADDRINUSE) || strings.Contains(err.Error(), "\n") {
		t.Errorf("of a process that lives: %v", err)
	}
	keepFile(first)
	_ = first.Close()
	second, err := Listen("unix:"+path, 0o666)
	if err != nil {
		t.Fatalf("of a process that has ended: %v", err)
	}
	defer second.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the second socket has mode %v, %v", info.Mode(), err)
	}
}

// TestListenBusy has a process behind the socket that takes no more connections.
func TestListenBusy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for { // until the queue is full
		conn, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	if _, err := Listen("unix:"+path, 0o660); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("took over a socket that is in use: %v", err)
	}
}

func TestListenKeepsFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix:"+file, 0o660); err == nil {
		t.Error("replaced a file that is no socket")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("the file now holds %q, %v", text, err)
	}
}

package command

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// terminal opens a pair of pseudo-terminals: what is written to the keyboard is
// what somebody types.
func terminal(t *testing.T) (keyboard, stdin *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	var unlocked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlocked, syscall.TIOCGPTN: &number} {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(unsafe.Pointer(value)))
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	stdin, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close() })
	return keyboard, stdin
}

// TestLocksReleaseAsks answers the question on a terminal.
func TestLocksReleaseAsks(t *testing.T) {
	section := fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr())
	file := writeConfig(t, "redis: "+section+everyLock)
	p := party{t, connected(t, section)}
	p.hold(redislock.Options{}, "order:lock:1", "settle 1")
	for _, tt := range []struct {
		typed string
		code  int
		want  string // in the end, of stderr
	}{
		{"n\n", exitFailed, "Release it? [y/N] locks release: nothing was released\n"},
		{"\n", exitFailed, "Release it? [y/N] locks release: nothing was released\n"},
		{"\x04", exitFailed, "Release it? [y/N] locks release: nothing was released\n"}, // Ctrl-D
		{"yes\n", exitDone, " heard=0 do=\"nothing if you know who did\" see=docs/locks-cli.md#who-released-what\n"},
		{"y\n", exitFailed, "locks release: order:lock:1 is not held\n"},
	} {
		t.Run(fmt.Sprintf("%q", tt.typed), func(t *testing.T) {
			keyboard, stdin := terminal(t)
			if _, err := io.WriteString(keyboard, tt.typed); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := commandWith(t, stdin, "locks", "release", "order:lock:1", "--config", file)
			if code != tt.code || !strings.HasSuffix(stderr, tt.want) || strings.Contains(stdout, "released;") != (code == exitDone) {
				t.Errorf("exit code %d, %s%s", code, stdout, stderr)
			}
		})
	}
}

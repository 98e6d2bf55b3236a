package source

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func TestStdin(t *testing.T) {
	var last Step
	file := CSV("-", Options{Stdin: strings.NewReader("order_id\n1\n2,x\n"), Progress: func(s Step) { last = s }})
	var ids []string
	report, err := file.Read(t.Context(), collect(&ids))
	if err != nil || !slices.Equal(ids, []string{"1", "2"}) || report.IDs != 2 {
		t.Errorf("%q, %+v, %v", ids, report, err)
	}
	if want := (Step{IDs: 2, Done: 15}); last != want {
		t.Errorf("progress ended at %+v, want %+v", last, want)
	}
	const again = "reading order IDs from the standard input: it was read before, and cannot be read again"
	if err := file.IDs(t.Context(), collect(&ids)); err == nil || err.Error() != again {
		t.Errorf("%v, want %s", err, again)
	}
}

func TestStdinThatFails(t *testing.T) {
	broken := errors.New("broken pipe")
	file := CSV("-", Options{Stdin: io.MultiReader(strings.NewReader("1\n2\n"), iotest.ErrReader(broken))})
	var ids []string
	if err := file.IDs(t.Context(), collect(&ids)); !errors.Is(err, broken) || len(ids) != 2 {
		t.Errorf("%q, %v", ids, err)
	}
}

// TestStdinStopsWithContext ends a read while no input comes.
func TestStdinStopsWithContext(t *testing.T) {
	in, into := io.Pipe()
	t.Cleanup(func() { _ = into.Close() }) // or the reader would stay
	gone := errors.New("gone home")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _ = into.Write([]byte("1\n2\n")) // returns after the read
		cancel(gone)
	}()
	err := CSV("-", Options{Stdin: in}).IDs(ctx, func(string) error { return nil })
	if !errors.Is(err, gone) || !strings.Contains(err.Error(), "the standard input: interrupted at line") {
		t.Errorf("%v", err)
	}
}

// TestPipeStopsWithContext ends a read of a pipe that nothing writes to, and of a line without an end.
func TestPipeStopsWithContext(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := CSV(path, Options{}).IDs(ctx, func(string) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", path, err)
		}
		cancel()
	}
	if writer, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil { // or the reader would stay
		_ = writer.Close()
	}
}

// TestStdinStopsWithYield ends a read before the end of the input.
func TestStdinStopsWithYield(t *testing.T) {
	enough := errors.New("enough")
	endless := iotest.OneByteReader(strings.NewReader(strings.Repeat("1\n", 100_000)))
	err := CSV("-", Options{Stdin: endless}).IDs(t.Context(), func(string) error { return enough })
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}

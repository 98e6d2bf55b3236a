package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// style colours text, or leaves it alone. Colour after aligning: the codes have
// a length but no width.
type style struct{ colours bool }

func (s style) bold(text string) string  { return s.code("1", text) }
func (s style) dim(text string) string   { return s.code("2", text) }
func (s style) red(text string) string   { return s.code("31", text) }
func (s style) green(text string) string { return s.code("32", text) }

func (s style) code(sgr, text string) string {
	if !s.colours || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// screen is where text goes for a person to read: a terminal, or a file or pipe.
// It must not be used concurrently. Failing writes are not reported: a terminal
// that is gone ends the demo by a signal.
type screen struct {
	w        io.Writer
	terminal bool
	style    style
}

// newScreen finds out whether w is a terminal. Colours need one that knows them
// and a user who has not set NO_COLOR (https://no-color.org).
func newScreen(w io.Writer, getenv func(string) string) *screen {
	file, ok := w.(*os.File)
	s := &screen{w: w, terminal: ok && term.IsTerminal(int(file.Fd())) && getenv("TERM") != "dumb"}
	s.style.colours = s.terminal && getenv("NO_COLOR") == ""
	return s
}

func (s *screen) print(text string)                 { _, _ = io.WriteString(s.w, text) }
func (s *screen) printf(format string, args ...any) { _, _ = fmt.Fprintf(s.w, format, args...) }

func (s *screen) heading(text string) { s.printf("%s\n", s.style.bold(text)) }

// step runs f and writes a line with what it was, a detail that f returns, and
// how long it took. On a terminal the line is there from the beginning.
func (s *screen) step(what string, f func() (detail string, err error)) error {
	if s.terminal {
		s.printf("  %s ...", what)
	}
	start := time.Now()
	detail, err := f()
	if s.terminal {
		s.print("\r\x1b[K") // back to the start of the line, and erase it
	}
	if err != nil {
		return err
	}
	s.printf("  %-30s  %-17s  %s\n", what, detail, s.style.dim(fmt.Sprintf("%4.1f s", time.Since(start).Seconds())))
	return nil
}

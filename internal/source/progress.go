package source

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	logEvery  = 5 * time.Second        // between two lines in the log
	drawEvery = 100 * time.Millisecond // between two drawings of the bar
)

// Progress shows how far a read is: a bar on a terminal, otherwise a line in the
// log every five seconds, so that a short read says nothing. It is not safe for
// concurrent use: one goroutine reports.
type Progress struct {
	out  io.Writer // nil: no terminal
	log  *slog.Logger
	what string
	now  func() time.Time
	last time.Time // when the last line was logged
	bar  *progressbar.ProgressBar
}

// NewProgress returns the progress of reading what is named, on out (os.Stderr) if
// that is a terminal, else in the log.
func NewProgress(out *os.File, log *slog.Logger, what string) *Progress {
	p := newProgress(nil, log, what, time.Now)
	if term.IsTerminal(int(out.Fd())) {
		p.out = out
	}
	return p
}

func newProgress(out io.Writer, log *slog.Logger, what string, now func() time.Time) *Progress {
	return &Progress{out: out, log: log, what: what, now: now, last: now()}
}

// Report is an [Options] Progress: bytes read, of how many or 0.
func (p *Progress) Report(done, total int64) {
	if p.out != nil {
		p.draw(done, total)
		return
	}
	if now := p.now(); now.Sub(p.last) >= logEvery {
		p.last = now
		attrs := []any{"from", p.what, "bytes", done}
		if total > 0 {
			attrs = append(attrs, "percent", done*100/total)
		}
		p.log.Info("reading order IDs", attrs...)
	}
}

func (p *Progress) draw(done, total int64) {
	if p.bar == nil {
		if total <= 0 {
			total = -1 // the bar's word for unknown
		}
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.out),
			progressbar.OptionSetDescription(p.what),
			progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(drawEvery),
			progressbar.OptionClearOnFinish(),
		)
	}
	// A terminal that cannot be written to is no reason to stop reading.
	_ = p.bar.Set64(done)
}

// Close takes the bar off the terminal.
func (p *Progress) Close() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
